import { z } from 'zod';
import { causesOf } from '../lib/errors.ts';

/** The code and the address of a network error, as Node.js and its fetch have them. */
export function networkCause(error: unknown): { code?: string; address?: string } {
  for (const cause of causesOf(error)) {
    const { code, address, hostname, port } = networkError.safeParse(cause).data ?? {};
    const host = address ?? hostname;
    if (code !== undefined) return { code, ...(host && { address: port === undefined ? host : `${host}:${port}` }) };
  }
  return {};
}

/** Codes that a provider has sent have another form, and come with a status. */
const networkError = z.object({
  code: z.string().regex(/^[A-Z][A-Z\d_]{1,40}$/),
  address: z.string().optional(),
  hostname: z.string().optional(),
  port: z.number().optional(),
  status: z.undefined().optional(),
});
