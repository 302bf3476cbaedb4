import { z } from 'zod';

/** How deep the cause of an error may be. */
const MAX_CAUSES = 5;

/** The code and the address of a network error, as Node.js and its fetch have them. */
export function networkCause(error: unknown): { code?: string; address?: string } {
  let cause = error;
  for (let depth = 0; depth < MAX_CAUSES && cause instanceof Error; depth++) {
    // Connections to several addresses of one host fail together.
    if (cause instanceof AggregateError) [cause] = cause.errors;
    const { code, address, hostname, port } = networkError.safeParse(cause).data ?? {};
    const host = address ?? hostname;
    if (code !== undefined) return { code, ...(host && { address: port === undefined ? host : `${host}:${port}` }) };
    cause = cause instanceof Error ? cause.cause : undefined;
  }
  return {};
}

/** Codes that a provider has sent are written otherwise, and stand beside a status. */
const networkError = z.object({
  code: z.string().regex(/^[A-Z][A-Z\d_]{1,40}$/),
  address: z.string().optional(),
  hostname: z.string().optional(),
  port: z.number().optional(),
  status: z.undefined().optional(),
});
