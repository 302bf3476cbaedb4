import { isJsonObject } from '../lib/json.ts';
import { memoized } from '../lib/memoized.ts';
import { withParts, type JsonSchema } from '../lib/schema-parts.ts';

/**
 * A JSON Schema of the same meaning that more servers can compile: `true` and `false` are objects (llama.cpp: "schema must
 * be an object"), and there is no `$schema`, which some servers reject. `additionalProperties` may be a boolean everywhere.
 */
export const portableSchema = memoized((schema: JsonSchema): JsonSchema => {
  const { $schema: _, ...root } = schema;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- an object stays an object
  return rewritten(root) as JsonSchema;
});

/** Parts that are nested deeper stay unchanged: a server that compiles them at all has other limits. */
const MAX_DEPTH = 100;

function rewritten(schema: unknown, depth = 0): unknown {
  if (schema === true) return {};
  if (schema === false) return { not: {} };
  if (!isJsonObject(schema) || depth > MAX_DEPTH) return schema;
  return withParts(schema, (part, keyword) => {
    const mayBeBoolean = keyword === 'additionalProperties' && typeof part === 'boolean';
    return mayBeBoolean ? part : rewritten(part, depth + 1);
  });
}
