/** Whether a value is set: in requests and definitions null means unset, too. */
export function isGiven<T>(value: T | null | undefined): value is T {
  return value !== null && value !== undefined;
}
