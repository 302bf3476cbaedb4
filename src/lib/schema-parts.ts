import { isJsonObject } from './json.ts';

export type JsonSchema = Record<string, unknown>;

/** The keywords whose values are schemas, lists of schemas, or schemas by name. */
const ONE = ['items', 'contains', 'not', 'if', 'then', 'else', 'propertyNames', 'additionalProperties'];
const LIST = ['anyOf', 'oneOf', 'allOf', 'prefixItems'];
const BY_NAME = ['properties', 'patternProperties', '$defs', 'definitions', 'dependentSchemas'];

/**
 * A schema whose direct parts are those that `change` returns for them; the schema itself if they are the same. `items`
 * may be a list, as in draft-07.
 */
export function withParts(schema: JsonSchema, change: (part: unknown, keyword: string) => unknown): JsonSchema {
  const made: JsonSchema = { ...schema };
  let isChanged = false;
  const changed = (part: unknown, keyword: string): unknown => {
    const next = change(part, keyword);
    if (next !== part) isChanged = true;
    return next;
  };
  for (const key of [...ONE, ...LIST]) {
    if (!Object.hasOwn(made, key)) continue;
    const value = made[key];
    if (Array.isArray(value)) made[key] = value.map((part: unknown) => changed(part, key));
    else if (ONE.includes(key)) made[key] = changed(value, key);
  }
  for (const key of BY_NAME) {
    const named = made[key];
    if (!isJsonObject(named)) continue;
    made[key] = Object.fromEntries(Object.entries(named).map(([name, part]) => [name, changed(part, key)]));
  }
  return isChanged ? made : schema;
}
