import { sql, type Expression, type RawBuilder, type SqlBool } from 'kysely';

/** Where a page of a listing begins, and how long it is. */
export interface PageOf {
  offset: number;
  limit: number;
}

/** A page of a listing, and how many rows the listing has. */
export interface RowPage<T> {
  rows: T[];
  total: number;
}

/** The field by which a listing is sorted. */
export interface SortKey<C extends string> {
  by: C;
  descending: boolean;
}

/** The number of rows that a search loads at once. */
const BATCH = 500;

/** Whether a column contains a text, regardless of case: of ASCII letters in SQLite. */
export function contains(column: Expression<string>, text: string): RawBuilder<SqlBool> {
  const pattern = `%${text.toLowerCase().replaceAll(/[\\%_]/g, (character) => `\\${character}`)}%`;
  return sql<SqlBool>`lower(${column}) like ${pattern} escape '\\'`;
}

/** Whether one of the texts contains another one, regardless of case. */
export function containsText(texts: string[], searched: string): boolean {
  return texts.some((text) => text.toLowerCase().includes(searched.toLowerCase()));
}

/** A page of the rows that fit a condition which the database cannot check, since their texts may be encrypted. */
export async function searchRows<T>(
  { offset, limit }: PageOf,
  load: (batch: PageOf) => Promise<T[]>,
  fits: (row: T) => boolean,
): Promise<RowPage<T>> {
  const rows: T[] = [];
  let total = 0;
  for (let at = 0, isMore = true; isMore; at += BATCH) {
    const batch = await load({ offset: at, limit: BATCH });
    isMore = batch.length === BATCH;
    for (const row of batch.filter(fits)) {
      if (total >= offset && rows.length < limit) rows.push(row);
      total += 1;
    }
  }
  return { rows, total };
}
