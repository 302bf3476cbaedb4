import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { Request, Response } from 'express';
import { ApiError } from './errors.ts';
import { asDownload } from './send-file.ts';

/** A file that is read in pieces. */
interface RangedFile {
  name: string;
  type: string;
  bytes: number;
  /** In hex. */
  sha256: string;
  /** The bytes from this one on. The first piece is read before anything is sent. */
  content: (from: number) => AsyncIterator<Buffer>;
}

/**
 * Sends a file as a download: the whole, or the range of bytes that the request names (RFC 9110, section 14). A request for
 * several ranges gets the whole.
 * @throws ApiError `range_not_satisfiable`, and errors of the first piece
 */
export async function sendRange(request: Request, response: Response, file: RangedFile): Promise<void> {
  const etag = `"${file.sha256}"`;
  const range = rangeOf(request, file.bytes, etag);
  if (range === 'unsatisfiable') {
    response.set('content-range', `bytes */${file.bytes}`);
    throw new ApiError('range_not_satisfiable', `the file has ${file.bytes} bytes`);
  }
  const { start, end } = range ?? { start: 0, end: file.bytes - 1 };
  const pieces = file.content(start);
  const first = await pieces.next();
  asDownload(response, file);
  response.set({
    'x-content-type-options': 'nosniff',
    'cache-control': 'private, no-cache',
    'accept-ranges': 'bytes',
    etag,
  });
  // Not Express's `fresh`, which treats the cache of a browser that reloads as empty.
  const known = request.get('if-none-match')?.split(',') ?? [];
  if (known.some((tag) => tag.trim() === etag)) return void response.status(304).end();
  if (range) response.status(206).set('content-range', `bytes ${start}-${end}/${file.bytes}`);
  response.set('content-length', String(end - start + 1));
  if (request.method === 'HEAD') return void response.end();
  const body = Readable.from(firstBytes(first, pieces, end - start + 1), { objectMode: false });
  // An error is of no use to a client that has closed the connection, or has half of the file.
  await pipeline(body, response).catch(() => response.destroy());
}

function rangeOf(
  request: Request,
  bytes: number,
  etag: string,
): { start: number; end: number } | 'unsatisfiable' | undefined {
  const condition = request.get('if-range');
  const ranges = condition === undefined || condition === etag ? request.range(bytes) : undefined;
  if (ranges === -1) return 'unsatisfiable';
  if (ranges === undefined || ranges === -2 || ranges.type !== 'bytes' || ranges.length !== 1) return undefined;
  return ranges[0];
}

/** The first `count` bytes of the pieces. */
async function* firstBytes(
  first: IteratorResult<Buffer, unknown>,
  rest: AsyncIterator<Buffer>,
  count: number,
): AsyncGenerator<Buffer> {
  let left = count;
  for (let next = first; !next.done && left > 0; next = left > 0 ? await rest.next() : next) {
    const piece = next.value.subarray(0, left);
    left -= piece.length;
    yield piece;
  }
}
