import { syncBuiltinESMExports } from 'node:module';
import timers from 'node:timers/promises';
import { isMainThread } from 'node:worker_threads';

/**
 * Loaded into a worker by `NODE_OPTIONS=--import=…`: every tool is quick for it, and a message waits for early results for
 * up to a minute, so they are recorded with their message on a busy machine, too.
 */
if (isMainThread) {
  const { EARLY_MS } = await import('../../../src/features/speculation/steps-ahead.ts');
  const { setTimeout: sleep } = timers;
  timers.setTimeout = (ms, ...rest) => sleep(ms === EARLY_MS ? 60_000 : ms, ...rest);
  syncBuiltinESMExports();
  const startedAt = performance.now();
  performance.now = () => startedAt;
}
