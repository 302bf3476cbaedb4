/** The name of a variable of the environment. */
export const VARIABLE_NAME = /^[A-Za-z_]\w*$/;

/** A variable of the kernel host in a value of `kernel.env`. */
const REFERENCE = /\$\{([A-Za-z_]\w*)\}/g;

/** The variables to which a value refers. */
export function referencesIn(value: string): string[] {
  return Array.from(value.matchAll(REFERENCE), ([, name = '']) => name);
}

/** A value with those of the variables to which it refers. */
export function withValues(value: string, valueOf: (name: string) => string): string {
  return value.replaceAll(REFERENCE, (_, name: string) => valueOf(name));
}
