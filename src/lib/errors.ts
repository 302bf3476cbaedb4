/** What an error says, whatever was thrown. */
export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** There is no Temporal to work with; the message says what to do about it. */
export class ProvisionError extends Error {}
