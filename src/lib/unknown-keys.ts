import { z } from 'zod';
import { nearestName } from './nearest-name.ts';

/** How many unknown keys an error names. The sender chooses them, so the others are only counted. */
const MAX_NAMED = 5;
const MAX_KEY_LENGTH = 64;

/**
 * The messages for keys that an object of a schema does not have: each with the nearest known key, or with all of them.
 * Pass it as `error` to `safeParse`.
 */
export const namingUnknownKeys: z.core.$ZodErrorMap = (issue) => {
  if (issue.code !== 'unrecognized_keys') return undefined;
  const known = keysOf(issue.inst);
  const named = issue.keys.slice(0, MAX_NAMED).map((key) => unknownKey(key, known));
  const others = issue.keys.length - named.length;
  return [...named, ...(others > 0 ? [`and ${others} more unknown keys`] : [])].join('; ');
};

/** The keys of an object, or of a record whose keys are those of an enum. */
function keysOf(schema: unknown): string[] {
  if (schema instanceof z.ZodObject) return Object.keys(schema.shape);
  return schema instanceof z.ZodRecord && schema.keyType instanceof z.ZodEnum ? schema.keyType.options.map(String) : [];
}

function unknownKey(key: string, known: string[]): string {
  const shown = JSON.stringify(key.slice(0, MAX_KEY_LENGTH));
  if (known.length === 0) return `unknown key ${shown}: no keys are known here`;
  const near = nearestName(key, known);
  return `unknown key ${shown}: ${near === undefined ? `the known ones are ${known.join(', ')}` : `do you mean ${JSON.stringify(near)}?`}`;
}
