/** An object with the same keys, whose values are made of those of another. */
export function mapValues<Key extends string, From, To>(
  object: Readonly<Record<Key, From>>,
  map: (value: From, key: Key) => To,
): Record<Key, To> {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the keys of its type
  const entries = Object.entries(object) as [Key, From][];
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- it has all of them
  return Object.fromEntries(entries.map(([key, value]) => [key, map(value, key)])) as Record<Key, To>;
}
