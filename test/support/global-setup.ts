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

/**
 * One Temporal server for all test files that need no server of their own, of all projects: an idle one takes five seconds
 * of processor time in the run of a project. Each file has its own task queue on it.
 */
export async function setup({ vitest }: TestProject): Promise<(() => Promise<void>) | undefined> {
  // Vitest runs the set-ups of its projects one after the other, and what they leave at its end.
  if ('temporalAddress' in vitest.getProvidedContext()) return undefined;
  const temporal = await startOwnTemporal();
  vitest.provide('temporalAddress', temporal.address);
  vitest.provide('temporalNamespace', temporal.namespace);
  return () => temporal.stop();
}
