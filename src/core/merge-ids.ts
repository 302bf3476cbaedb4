/** Whether a text can be an id of ours. What can't is not asked for: neither SQL nor Temporal takes every text. */
export function isId(text: string): boolean {
  return /^[\w-]{1,128}$/.test(text);
}
