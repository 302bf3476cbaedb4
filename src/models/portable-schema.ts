type Schema = Record<string, unknown>;

/** The keywords whose values are schemas, a list of schemas, or schemas by name. */
const ONE = ['items', 'contains', 'not', 'if', 'then', 'else', 'propertyNames'];
const LIST = ['anyOf', 'oneOf', 'allOf', 'prefixItems'];
const BY_NAME = ['properties', 'patternProperties', '$defs', 'definitions', 'dependentSchemas'];

const portable = new WeakMap<Schema, Schema>();

/**
 * A JSON Schema of the same meaning that more servers can compile: `true` and `false` are objects (llama.cpp: "schema must
 * be an object"), and there is no `$schema`, which some servers reject. `additionalProperties` may be a boolean everywhere.
 */
export function portableSchema(schema: Schema): Schema {
  const known = portable.get(schema);
  if (known) return known;
  const { $schema: _, ...root } = schema;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- an object stays an object
  const made = rewritten(root) as Schema;
  portable.set(schema, made);
  return made;
}

/** What is nested deeper is left as it is: a server that compiles it at all has other limits. */
const MAX_DEPTH = 100;

function rewritten(schema: unknown, depth = 0): unknown {
  if (schema === true) return {};
  if (schema === false) return { not: {} };
  if (!isObject(schema) || depth > MAX_DEPTH) return schema;
  const inner = (one: unknown) => rewritten(one, depth + 1);
  const made: Schema = { ...schema };
  for (const key of ONE) if (Object.hasOwn(made, key)) made[key] = inner(made[key]);
  for (const key of LIST) if (Array.isArray(made[key])) made[key] = made[key].map(inner);
  for (const key of BY_NAME) {
    const named = made[key];
    if (isObject(named)) made[key] = Object.fromEntries(Object.entries(named).map(([name, one]) => [name, inner(one)]));
  }
  return made;
}

function isObject(value: unknown): value is Schema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
