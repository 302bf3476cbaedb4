import { z } from 'zod';
import { parseJson } from '../../tools/arguments.ts';

/**
 * The fields that only the provider of a message understands, such as signatures of its reasoning: a client keeps them
 * with the part and sends them back. They name their provider and model, because other ones must not get them.
 */
const signedFields = z.object({
  provider: z.string(),
  model: z.string().optional(),
  /** The fields of the whole message. */
  message: z.record(z.string(), z.unknown()).optional(),
  /** The fields of the image that the part is. */
  part: z.record(z.string(), z.unknown()).optional(),
  /** The fields of the call that the part is. */
  call: z.record(z.string(), z.unknown()).optional(),
});

export type SignedFields = z.infer<typeof signedFields>;

export function encodeSignature(fields: SignedFields): string {
  return Buffer.from(JSON.stringify(fields)).toString('base64url');
}

/** Undefined for a signature that is not from this server, or exceeds the limits of what a model writes. */
export function decodeSignature(signature: string): SignedFields | undefined {
  const parsed = parseJson(Buffer.from(signature, 'base64url').toString());
  return 'value' in parsed ? signedFields.safeParse(parsed.value).data : undefined;
}
