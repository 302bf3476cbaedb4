import { z } from 'zod';
import { isId } from '../../core/ids.ts';
import { timeBound } from '../../spec/bounds.ts';
import { ApiError } from './errors.ts';
import { numberQuery } from './number-query.ts';
import { json } from './route.ts';

/** The position of a page in a listing. */
const paginationResource = z
  .object({
    limit: z.int(),
    next_page_token: z.string().nullable().describe('null: this is the last page'),
    previous_page_token: z.string().nullable(),
  })
  .meta({ id: 'Pagination' });

/** Declares the response with a page of a listing. The example is that of its only page. */
export function pageOf<T extends z.ZodType>(item: T, examples: z.output<T>[], limit: number) {
  const page = z.object({ data: z.array(item), pagination: paginationResource });
  return json(page, { data: examples, pagination: pagination(limit, undefined) });
}

type Pagination = z.infer<typeof paginationResource>;

/** Encodes a position in a listing; opaque to clients. */
function encodePageToken(position: Record<string, unknown>): string {
  return Buffer.from(JSON.stringify(position)).toString('base64url');
}

/**
 * The position that a token names; undefined without one. `list` has the fields of the position that name the listing.
 * @throws ApiError `invalid_page_token`, also for the token of another listing
 */
export function positionOf<T extends z.ZodObject>(
  schema: T,
  token: string | undefined,
  list: Partial<z.infer<T>> = {},
): z.infer<T> | undefined {
  if (token === undefined) return undefined;
  let position: unknown;
  try {
    position = JSON.parse(Buffer.from(token, 'base64url').toString());
  } catch {
    throw invalidPageToken();
  }
  const parsed = schema.safeParse(position);
  // Encoding must give the same token again; otherwise the token has extra bytes or fields.
  if (!parsed.success || encodePageToken(parsed.data) !== token) throw invalidPageToken();
  const { data } = parsed;
  if (Object.entries(list).some(([field, value]) => data[field] !== value)) throw invalidPageToken();
  return data;
}

export function invalidPageToken(): ApiError {
  const message = 'the page token does not belong to this listing: request the first page without one';
  return new ApiError('invalid_page_token', message, { param: 'page_token' });
}

/** The position after an item with this time and id, in the list with this fingerprint. */
const createdPosition = z.object({
  list: z.string(),
  created_at: z.iso.datetime({ precision: 3 }),
  id: z.string().refine(isId),
});

/**
 * The position that a token names in a list by creation; undefined without one. `list` is a fingerprint of the list.
 * @throws ApiError `invalid_page_token` for the token of another list
 */
export function createdAfter(token: string | undefined, list: string): { createdAt: string; id: string } | undefined {
  const position = positionOf(createdPosition, token, { list });
  return position && { createdAt: position.created_at, id: position.id };
}

/** The position after an item, which is the last one of a page. */
export function positionAfter(item: { created_at: string; id: string }, list: string): z.infer<typeof createdPosition> {
  return { list, created_at: item.created_at, id: item.id };
}

/** Query parameters of a listing. */
export function pageQuery({ defaultLimit, maxLimit }: { defaultLimit: number; maxLimit: number }) {
  return z.object({
    limit: numberQuery({ min: 1, max: maxLimit, byDefault: defaultLimit, description: 'maximum number of items' }),
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

/** The most JSON that is read for one page without any item of the list, in characters. */
const MAX_EMPTY_PAGE_LENGTH = 4 * MAX_PAGE_LENGTH;

/** An entry that is read and left out counts as at least so many characters: short entries cost their reading, too. */
const MIN_LEFT_OUT_LENGTH = 2_000;

/** An item of a listing, with the position from which a page begins with it. */
interface Positioned<T> {
  item: T;
  position: Record<string, unknown> | undefined;
  /** It was read, and is not in the list. */
  isLeftOut?: boolean;
}

/**
 * A page of a listing, which is read as far as needed: up to `limit` items and up to a length, but at least one item, if
 * there is any. The item that does not fit begins the next page. Entries that are left out are bounded as well: they
 * end a page with items after the length of a page, and a page without items after four times that length. Only in
 * this case an empty page is not the last one.
 */
export async function pageFrom<T>(
  listing: Iterable<Positioned<T>> | AsyncIterable<Positioned<T>>,
  limit: number,
): Promise<{ data: T[]; pagination: Pagination }> {
  const data: T[] = [];
  let [length, leftOut] = [0, 0];
  for await (const { item, position, isLeftOut = false } of listing) {
    if (!isLeftOut && data.length === limit) return { data, pagination: pagination(limit, position) };
    const itemLength = JSON.stringify(item).length;
    if (isLeftOut) leftOut += Math.max(itemLength, MIN_LEFT_OUT_LENGTH);
    else length += itemLength;
    const isFull =
      data.length > 0 ? length > MAX_PAGE_LENGTH || leftOut > MAX_PAGE_LENGTH : leftOut > MAX_EMPTY_PAGE_LENGTH;
    if (isFull) return { data, pagination: pagination(limit, position) };
    if (!isLeftOut) data.push(item);
  }
  return { data, pagination: pagination(limit, undefined) };
}

/**
 * A page of rows, of which the listing has read one more than `limit`.
 * @param after the position after a row
 */
export async function pageOfRows<R, T>(
  rows: readonly R[],
  limit: number,
  { toItem, after }: { toItem: (row: R) => T | Promise<T>; after: (last: R) => Record<string, unknown> },
): Promise<{ data: T[]; pagination: Pagination }> {
  async function* listing(): AsyncGenerator<Positioned<T>> {
    for (const [i, row] of rows.entries()) {
      const last = rows[i - 1];
      yield { item: await toItem(row), position: last && after(last) };
    }
  }
  return pageFrom(listing(), limit);
}
