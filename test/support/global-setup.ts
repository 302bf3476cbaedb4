import type { TestProject } from 'vitest/node';
import { startOwnTemporal } from './own-temporal.ts';

declare module 'vitest' {
  interface ProvidedContext {
    temporalAddress: string;
    temporalNamespace: string;
    /** Only in the project `postgres`: a server on which each test creates databases. */
    postgresUrl: string | undefined;
  }
}

/** One Temporal server for all test files that need no server of their own. Each has its own task queue on it. */
export async function setup(project: TestProject): Promise<() => Promise<void>> {
  const temporal = await startOwnTemporal();
  project.provide('temporalAddress', temporal.address);
  project.provide('temporalNamespace', temporal.namespace);
  return () => temporal.stop();
}
