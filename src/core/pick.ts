/** Some fields of an object, without those that it does not have. */
export function pick<T extends object, Name extends keyof T>(from: T, ...names: Name[]): Pick<T, Name> {
  const entries = names.map((name) => [name, from[name]] as const).filter(([, value]) => value !== undefined);
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only optional fields may be undefined
  return Object.fromEntries(entries) as Pick<T, Name>;
}
