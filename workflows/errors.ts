/** The message of anything thrown. Workflow code cannot import `src/lib/errors.ts`. */
export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
