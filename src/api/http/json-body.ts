import express, { type NextFunction, type Request, type Response } from 'express';
import { jsonShape } from '../../lib/json-shape.ts';
import { ApiError } from './errors.ts';
import { setContext } from './request.ts';
import { errorMessage } from '../../lib/errors.ts';

/** Maximum body sizes: of routes that take content, and of routes that take a few fields. */
const LARGE_MB = 30;
const SMALL_MB = 1;

/** Deeper values would overflow the stack of recursive code, such as the hash of a body. */
const MAX_DEPTH = 100;

/** Each value may produce a validation error of up to a kilobyte. The 10,000 items of a run have up to 150,000 values. */
const MAX_VALUES = 200_000;

/** Parses the body as JSON, whatever its content type. An empty body is undefined. */
export const smallJsonBody = [express.raw({ limit: `${SMALL_MB}mb`, type: () => true }), parseJson];
export const largeJsonBody = [express.raw({ limit: `${LARGE_MB}mb`, type: () => true }), parseJson];

/** The bytes of the body, whatever its content type. */
export const rawBody = [express.raw({ limit: `${LARGE_MB}mb`, type: () => true }), takeBytes];

/** The fields of an HTML form. */
export const formBody = [express.urlencoded({ extended: false, limit: '10kb', parameterLimit: 20 })];

function takeBytes(request: Request, response: Response, next: NextFunction): void {
  const bytes: unknown = request.body;
  request.body = bytes instanceof Buffer ? bytes : Buffer.alloc(0);
  setContext(response, { bodyBytes: bytes instanceof Buffer ? bytes.length : 0 });
  next();
}

function parseJson(request: Request, response: Response, next: NextFunction): void {
  const bytes: unknown = request.body;
  setContext(response, { bodyBytes: bytes instanceof Buffer ? bytes.length : 0 });
  request.body = bytes instanceof Buffer && bytes.length > 0 ? fromJson(decode(bytes)) : undefined;
  next();
}

/** Rejects a body that is not UTF-8: replacement characters would alter the user's text. */
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
    throw new ApiError('invalid_request', `the body has more than ${MAX_VALUES} values: send fewer`);
  }
  try {
    return JSON.parse(text);
  } catch (error) {
    const reason = errorMessage(error);
    throw new ApiError('invalid_json', `the body is not JSON: ${reason}`, { cause: error });
  }
}
