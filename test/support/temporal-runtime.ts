import { flushCompileCache } from 'node:module';
import type { Logger } from 'pino';
import { installTemporalRuntime } from '../../src/telemetry/temporal-runtime.ts';

let installed: Promise<void> | undefined;

/** Installs the runtime of Temporal's SDK, of which a process has one: the first that needs it decides on its log. */
export function installRuntime(log: Logger): Promise<void> {
  installed ??= install(log);
  return installed;
}

async function install(log: Logger): Promise<void> {
  await installTemporalRuntime(log);
  // Node writes it when a process exits, but vitest ends its processes by a signal.
  flushCompileCache();
}
