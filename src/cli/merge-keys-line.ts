/** What a greeting says of keys. `names` get in; undefined if everybody does. */
export function keysLine(names: string[] | undefined): string {
  if (!names) return 'none needed: only this machine can connect';
  if (names.length === 0) return 'needed, and nobody has one: `everturn keys create` makes one';
  return `needed; these get in: ${names.join(', ')}`;
}
