import { fitsWildcards } from '../../../tools/decision-policy.ts';

/**
 * Whether a pattern fits a path: `*` and `?` match within one name, `**` as a name matches any number of them, at the
 * end of a pattern at least one. Both are relative or both absolute. At most `pattern.length * path.length` steps.
 */
export function fitsPath(pattern: string, path: string): boolean {
  const names = path.split('/');
  const parts = pattern
    .split('/')
    .flatMap((part, i, all) => (part === '**' && i === all.length - 1 ? ['**', '*'] : [part]));
  let [p, n] = [0, 0];
  /** The index of the last `**`, and the number of names up to the end of its match. */
  let [star, reach] = [-1, 0];
  while (n < names.length) {
    const part = parts[p];
    if (part === '**') {
      [star, reach] = [p, n];
      p += 1;
    } else if (part !== undefined && fitsWildcards(part, names[n] ?? '')) {
      [p, n] = [p + 1, n + 1];
    } else if (star >= 0) {
      reach += 1;
      [p, n] = [star + 1, reach];
    } else return false;
  }
  return p === parts.length;
}
