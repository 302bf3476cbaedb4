/** The delay between attempts at an API that is unavailable. */
export const PAUSE_MS = 100;

/** An error that no fault explains: neither a broken connection nor a server that is unavailable. */
export function isFinding(error: unknown): boolean {
  if (!(error instanceof Error)) return true;
  if (error.name === 'AssertionError' || error.name === 'ZodError' || error instanceof SyntaxError) return true;
  return /^4\d\d /.test(error.message);
}
