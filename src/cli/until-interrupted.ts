import { StartupError } from '../lib/errors.ts';

/**
 * The signal for a check that starts programs. Ctrl-C does not reach these, which have groups of their own: they are ended
 * with the check.
 */
export function untilInterrupted(): AbortSignal {
  const interrupted = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => interrupted.abort(new StartupError(`the check was ended by ${signal}`)));
  }
  return interrupted.signal;
}
