import { z } from 'zod';
import { isId } from '../../core/ids.ts';
import { timeBound } from '../../spec/bounds.ts';
import { ApiError } from './errors.ts';

/** The position of a page in a listing. */
export const paginationResource = z
  .object({
    limit: z.int(),
    next_page_token: z.string().nullable().describe('null: this is the last page'),
    previous_page_token: z.string().nullable(),
  })
  .meta({ id: 'Pagination' });

/** The response with a page of a listing. */
export function pageOf<T extends z.ZodType>(item: T) {
  return z.object({ data: z.array(item), pagination: paginationResource });
}

export type Pagination = z.infer<typeof paginationResource>;

/** Encodes a position in a listing; opaque to clients. */
function encodePageToken(position: Record<string, unknown>): string {
  return Buffer.from(JSON.stringify(position)).toString('base64url');
}

/** @throws ApiError `invalid_page_token` */
export function decodePageToken<T extends z.ZodObject>(schema: T, token: string): z.infer<T> {
  let position: unknown;
  try {
    position = JSON.parse(Buffer.from(token, 'base64url').toString());
  } catch {
    throw invalidPageToken();
  }
  const parsed = schema.safeParse(position);
  // Encoding must give the same token again; otherwise the token has extra bytes or fields.
  if (!parsed.success || encodePageToken(parsed.data) !== token) throw invalidPageToken();
  return parsed.data;
}

export function invalidPageToken(): ApiError {
  return new ApiError(
    'invalid_page_token',
    'the page token does not belong to this listing: request the first page without one',
    {
      param: 'page_token',
    },
  );
}

/** The position after an item with this time and id, in the list with this fingerprint. */
const createdPlace = z.object({
  list: z.string(),
  created_at: z.iso.datetime({ precision: 3 }),
  id: z.string().refine(isId),
});

/**
 * The position that a token names in a list by creation; undefined without one. `list` is a fingerprint of the list.
 * @throws ApiError `invalid_page_token` for the token of another list
 */
export function createdAfter(token: string | undefined, list: string): { createdAt: string; id: string } | undefined {
  if (token === undefined) return undefined;
  const { list: other, created_at: createdAt, id } = decodePageToken(createdPlace, token);
  if (other !== list) throw invalidPageToken();
  return { createdAt, id };
}

/** The position after an item, which is the last one of a page; undefined without one. */
export function placeAfter(
  item: { created_at: string; id: string } | undefined,
  list: string,
): z.infer<typeof createdPlace> | undefined {
  return item && { list, created_at: item.created_at, id: item.id };
}

/** Query parameters of a listing. */
export function pageQuery({ defaultLimit, maxLimit }: { defaultLimit: number; maxLimit: number }) {
  const error = `must be a number from 1 to ${maxLimit}`;
  return z.object({
    limit: z
      .string(error)
      .regex(/^\d+$/, error)
      .transform(Number)
      .pipe(z.int(error).min(1, error).max(maxLimit, error))
      .default(defaultLimit)
      .meta({
        description: 'maximum number of items',
        override: ({ jsonSchema }) => {
          delete jsonSchema.pattern;
          Object.assign(jsonSchema, { type: 'integer', minimum: 1, maximum: maxLimit, default: defaultLimit });
        },
      }),
    page_token: z
      .string()
      .optional()
      .meta({ description: 'next_page_token of the previous page', override: { format: 'page-token' } }),
  });
}

/** The sort order of a listing. */
export const order = z.enum(['asc', 'desc'], { error: 'must be asc or desc' });

/** Query parameters of a listing by creation. */
export function createdQuery(defaultLimit: number) {
  return pageQuery({ defaultLimit, maxLimit: 100 }).extend({
    order: order.default('desc').describe('by created_at'),
    start_timestamp: timeBound('start').describe('the first created_at of the list'),
    end_timestamp: timeBound('end').describe('the last created_at of the list'),
  });
}

export function pagination(limit: number, next: Record<string, unknown> | undefined): Pagination {
  return { limit, next_page_token: next ? encodePageToken(next) : null, previous_page_token: null };
}

/** The most JSON of one page, in characters; further items move to the next page. */
const MAX_PAGE_LENGTH = 8_000_000;

/** Collects a page of a listing: up to a number of items and up to a length, but at least one item. */
export class Page<T> {
  readonly items: T[] = [];
  readonly #limit: number;
  #length = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Adds an item. False if the page is full: the item then begins the next page. */
  add(item: T): boolean {
    if (this.items.length === this.#limit) return false;
    const { length } = JSON.stringify(item);
    if (this.items.length > 0 && this.#length + length > MAX_PAGE_LENGTH) return false;
    this.items.push(item);
    this.#length += length;
    return true;
  }
}
