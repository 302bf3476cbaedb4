import { z } from 'zod';
import { isJsonObject } from '../../../lib/json.ts';

/** Headers of requests, by the names that the documentation shows. */

const MAX_METADATA_BYTES = 4096;

/** A JSON object that is stored with the session; parsed to its JSON text, which is stored. */
export const metadata = {
  'x-tfy-metadata': z
    .string()
    .transform((header, context) => {
      // An empty header counts as absent.
      if (header === '') return undefined;
      // Node decodes each byte of a header to one character (latin1).
      const value = parseMetadata(Buffer.from(header, 'latin1'));
      if (isJsonObject(value)) return JSON.stringify(value);
      context.addIssue('must be a JSON object of at most 4 KiB in UTF-8');
      return z.NEVER;
    })
    .optional()
    .meta({
      description: 'a JSON object of at most 4 KiB, returned as the metadata of the session',
      param: { content: { 'application/json': { schema: { type: 'object' }, example: { team: 'blue' } } } },
    }),
};

function parseMetadata(bytes: Buffer): unknown {
  if (bytes.length > MAX_METADATA_BYTES) return undefined;
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch {
    return undefined;
  }
}
