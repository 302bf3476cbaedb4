/** What a greeting says of keys. `names` have one; undefined if nobody needs one. */
export function keysLine(names: string[] | undefined): string {
  return names ? `needed; there are keys for ${names.join(', ')}` : 'none needed: only this machine can connect';
}
