import express, { type NextFunction, type Request, type Response } from 'express';
import { jsonShape } from '../../lib/json-shape.ts';
import { ApiError } from './errors.ts';
import { errorMessage } from '../../lib/errors.ts';

/** What a body may take, in megabytes: one with content, and one of a few fields. */
const LARGE_MB = 30;
const SMALL_MB = 1;

/** Deeper values break those who walk them by recursion, such as the hash of a body. */
const MAX_DEPTH = 100;

/** Each value may be wrong in its own way, and to say so takes a kilobyte. */
const MAX_VALUES = 100_000;

/** Reads the body of a request: whatever the client calls it, it is JSON here. An empty one is none. */
export const smallJsonBody = [express.raw({ limit: `${SMALL_MB}mb`, type: () => true }), parseJson];
export const largeJsonBody = [express.raw({ limit: `${LARGE_MB}mb`, type: () => true }), parseJson];

function parseJson(request: Request, _response: Response, next: NextFunction): void {
  const bytes: unknown = request.body;
  request.body = bytes instanceof Buffer && bytes.length > 0 ? fromJson(decode(bytes)) : undefined;
  next();
}

/** What is not UTF-8 is refused: replaced by question marks it would be something that nobody has said. */
function decode(bytes: Buffer): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (error) {
    throw new ApiError('invalid_json', 'the body is not UTF-8', { cause: error });
  }
}

function fromJson(text: string): unknown {
  const { depth, values } = jsonShape(text);
  if (depth > MAX_DEPTH) throw new ApiError('invalid_json', `the body is nested deeper than ${MAX_DEPTH} levels`);
  if (values > MAX_VALUES) {
    throw new ApiError('invalid_request', `the body has more than ${MAX_VALUES} values: send less at once`);
  }
  try {
    return JSON.parse(text);
  } catch (error) {
    const reason = errorMessage(error);
    throw new ApiError('invalid_json', `the body is not JSON: ${reason}`, { cause: error });
  }
}
