import { mkdtemp, rm } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import type { TestProject } from 'vitest/node';
import { provisionTemporal } from '../../src/temporal/provision.ts';

declare module 'vitest' {
  interface ProvidedContext {
    temporalAddress: string;
    temporalNamespace: string;
  }
}

/** One Temporal server for all test files that need no server of their own: each has its own task queue on it. */
export async function setup(project: TestProject): Promise<() => Promise<void>> {
  const dataDir = await mkdtemp(path.join(tmpdir(), 'everturn-temporal-'));
  const temporal = await provisionTemporal({
    dataDir,
    cacheDir: path.join(process.env['XDG_CACHE_HOME'] ?? path.join(homedir(), '.cache'), 'everturn'),
    foreign: undefined,
    namespace: 'everturn',
    log: pino({ level: 'warn' }, pino.destination(2)),
  });
  project.provide('temporalAddress', temporal.connectionOptions.address ?? '');
  project.provide('temporalNamespace', temporal.namespace);
  return async () => {
    await temporal.stop();
    await rm(dataDir, { recursive: true, force: true });
  };
}
