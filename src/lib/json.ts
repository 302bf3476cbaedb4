/** Whether a value of JSON is an object, which lists are not. */
export function isJsonObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The value of a JSON text; undefined if it is not JSON. */
export function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The value at a JSON pointer (RFC 6901); undefined if there is none. */
export function valueAt(value: unknown, pointer: string): unknown {
  const keys = pointer === '' ? [] : pointer.slice(1).split('/');
  return partAt(
    value,
    keys.map((key) => key.replaceAll('~1', '/').replaceAll('~0', '~')),
  );
}

/** The part of a JSON value to which these keys lead; undefined if there is none. */
export function partAt(value: unknown, keys: readonly string[]): unknown {
  let part = value;
  for (const key of keys) {
    if (typeof part !== 'object' || part === null || !Object.hasOwn(part, key)) return undefined;
    part = Reflect.get(part, key);
  }
  return part;
}
