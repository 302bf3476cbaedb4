import type { TestProject } from 'vitest/node';
import { Postgres } from './postgres.ts';

/** One PostgreSQL server for all test files. Each catalog has its own database on it. */
export async function setup(project: TestProject): Promise<() => Promise<void>> {
  const postgres = await Postgres.start();
  project.provide('postgresUrl', postgres.url);
  return () => postgres.stop();
}
