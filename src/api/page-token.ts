import { z } from 'zod';
import { ApiError } from './errors.ts';

/** A place in a listing, opaque to clients. */
export function encodePageToken(place: Record<string, unknown>): string {
  return Buffer.from(JSON.stringify(place)).toString('base64url');
}

/** @throws ApiError `invalid_page_token` */
export function decodePageToken<T extends z.ZodType>(schema: T, token: string): z.infer<T> {
  let place: unknown;
  try {
    place = JSON.parse(Buffer.from(token, 'base64url').toString());
  } catch {
    throw badToken();
  }
  const parsed = schema.safeParse(place);
  if (!parsed.success) throw badToken();
  return parsed.data;
}

export function badToken(): ApiError {
  return new ApiError('invalid_page_token', 'the page token is not from this listing: start without one', {
    param: 'page_token',
  });
}

/** Query parameters of a listing. An empty value is none. */
export function pageQuery({ defaultLimit, maxLimit }: { defaultLimit: number; maxLimit: number }) {
  return z.object({
    limit: z.coerce
      .number({ error: `must be a number from 1 to ${maxLimit}` })
      .int({ error: `must be a number from 1 to ${maxLimit}` })
      .min(1, { error: `must be a number from 1 to ${maxLimit}` })
      .max(maxLimit, { error: `must be a number from 1 to ${maxLimit}` })
      .default(defaultLimit),
    page_token: z
      .string()
      .optional()
      .transform((token) => token || undefined),
  });
}

export interface Pagination {
  limit: number;
  next_page_token: string | null;
  previous_page_token: null;
}

export function pagination(limit: number, next: Record<string, unknown> | undefined): Pagination {
  return { limit, next_page_token: next ? encodePageToken(next) : null, previous_page_token: null };
}
