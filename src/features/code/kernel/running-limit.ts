/** The maximum extension of a limit for waits for a processor: code can cause such waits by other processes. */
const MAX_DELAY_MS = 55_000;
const RECHECK_MS = 50;

/**
 * Calls `onReached` after this time, not counting the time in which a process waits for a processor: on a loaded
 * machine, code that has not run meanwhile has ignored nothing.
 *
 * @param delayMs the time for which the process has waited for a processor since its start
 * @returns a function that ends the limit
 */
export function limitRunning(ms: number, delayMs: () => number, onReached: () => void): () => void {
  const [since, before] = [performance.now(), delayMs()];
  const check = (): void => {
    const extension = Math.min(delayMs() - before, MAX_DELAY_MS);
    const left = ms + extension - (performance.now() - since);
    if (left <= 0) onReached();
    else timer = setTimeout(check, Math.max(left, RECHECK_MS));
  };
  let timer = setTimeout(check, ms);
  return () => clearTimeout(timer);
}
