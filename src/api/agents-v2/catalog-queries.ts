import { z } from 'zod';
import type { SortKey } from '../../features/agent-sessions/search-rows.ts';
import { line } from '../../spec/bounds.ts';
import { ApiError } from '../http/errors.ts';
import { AGENTS_V2_ERRORS, invalidField } from './errors.ts';
import { integerQuery, repeatedQuery } from './wire/query.ts';

/** The common parts of the catalog's listings. */

/** The most JSON of one page, in characters as they are stored. */
export const MAX_PAGE_LENGTH = 8_000_000;

/** A part of a text, in any case. */
export const searched = line({ min: 1, max: 256 }).optional();

export const paging = z.object({
  page: integerQuery({ min: 1, max: 1_000_000 }).default(1),
  size: integerQuery({ min: 1, max: 1_000 }).default(10),
});

/** The sort orders of a listing: columns by the fields of this API. `-` before a field: descending. */
export function sortQuery<F extends string, C extends string>(columns: Record<F, C>, byDefault: SortKey<C>) {
  const orders = new Map(
    Object.entries<C>(columns).flatMap(([field, by]): [string, SortKey<C>][] => [
      [field, { by, descending: false }],
      [`-${field}`, { by, descending: true }],
    ]),
  );
  const names = [...orders.keys()];
  return repeatedQuery(
    z.enum(names).transform((name) => orders.get(name) ?? byDefault),
    names.length,
  ).default([byDefault]);
}

export function rangeOf({ page, size }: { page: number; size: number }): { offset: number; limit: number } {
  return { offset: (page - 1) * size, limit: size };
}

/** The order of a listing that is sorted by one field. */
export function orderOf({ sort: [first = ''] }: { sort: string[] }): 'asc' | 'desc' {
  return first.startsWith('-') ? 'desc' : 'asc';
}

export function pageTooLarge(): ApiError {
  return new ApiError(
    AGENTS_V2_ERRORS.page_too_large,
    'the items of this page are too large together: request it with a smaller size',
  );
}

/** The namespace of the server's own parts: clients of this API may not use names in it. */
export const RESERVED = 'h/';

/** @throws ApiError `forbidden` */
export function refuseReserved(name: string): void {
  if (!name.startsWith(RESERVED)) return;
  throw new ApiError('forbidden', `names that begin with ${RESERVED} are reserved: choose another namespace`);
}

/** @throws ApiError if the body of a PUT has another name than its URL */
export function requireSameName(field: string, { body, url }: { body: string; url: string }): void {
  if (body === url) return;
  throw invalidField(field, `must be ${JSON.stringify(url)}, as in the URL: names cannot be changed`);
}
