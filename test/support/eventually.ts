import { vi } from 'vitest';

/** Waits until a check passes: up to 30 s, since a busy machine takes longer than vitest's second. */
export function eventually<T>(check: () => T | Promise<T>): Promise<T> {
  return vi.waitFor(check, { timeout: 30_000 });
}
