import { z } from 'zod';
import { nearestName } from './nearest-name.ts';

/** Of more keys than these an error says only how many there are: they are chosen by the sender. */
const MAX_NAMED = 5;
const MAX_KEY_LENGTH = 64;

/**
 * The messages for keys that an object of a schema does not have: each with the nearest known key, or with all of them.
 * Pass it as `error` to `safeParse`.
 */
export const namingUnknownKeys: z.core.$ZodErrorMap = (issue) => {
  if (issue.code !== 'unrecognized_keys') return undefined;
  const known = issue.inst instanceof z.ZodObject ? Object.keys(issue.inst.shape) : [];
  const named = issue.keys.slice(0, MAX_NAMED).map((key) => unknownKey(key, known));
  const others = issue.keys.length - named.length;
  return [...named, ...(others > 0 ? [`and ${others} more unknown keys`] : [])].join('; ');
};

function unknownKey(key: string, known: string[]): string {
  const near = nearestName(key, known);
  const advice = near === undefined ? `the known ones are ${known.join(', ')}` : `do you mean ${JSON.stringify(near)}?`;
  return `unknown key ${JSON.stringify(key.slice(0, MAX_KEY_LENGTH))}: ${advice}`;
}
