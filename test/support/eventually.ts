import { vi } from 'vitest';

/** Waits until a check passes, for up to 100 s: a busy machine takes longer than vitest's default of one second. */
export function eventually<T>(check: () => T | Promise<T>): Promise<T> {
  return vi.waitFor(check, { timeout: 100_000 });
}
