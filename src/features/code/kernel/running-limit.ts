/** The longest wait for a processor that a limit is extended by: code can make a process wait by its others. */
const MAX_DELAY_MS = 55_000;
const RECHECK_MS = 50;

/**
 * Calls `onReached` after this time, without that in which a process waits for a processor: on a loaded machine, code that
 * has not run since has ignored nothing.
 *
 * @param delayMs how long the process has waited for a processor since it was started
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
