import type { Request, Response } from 'express';
import type { z } from 'zod';
import type { Caller } from '../../core/subject.ts';
import { ApiError } from './errors.ts';

/** What the server knows of a request, beside the request itself. */
export interface RequestContext {
  caller: Caller;
  /** Why the request is one too many, if it is. */
  rateLimitError?: ApiError;
}

/** For every request behind authentication: first of all who calls. */
export function setContext(response: Response, context: Partial<RequestContext>): void {
  Object.assign(response.locals, context);
}

export function contextOf(response: Response): RequestContext {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- `setContext` has written it, beside what others have
  const { caller, rateLimitError } = response.locals as RequestContext;
  return { caller, ...(rateLimitError && { rateLimitError }) };
}

/** Past these a client has seen enough of what is wrong. */
const MAX_PROBLEMS = 5;
const MAX_PARAM_LENGTH = 300;

/** Validates a part of a request. @throws ApiError `invalid_request` that names the field */
function parse<T extends z.ZodType>(schema: T, value: unknown): z.infer<T> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const problems = parsed.error.issues.slice(0, MAX_PROBLEMS).map(describe);
  throw new ApiError('invalid_request', problems.map(({ message }) => message).join('; '), {
    param: problems[0]?.param,
  });
}

/** The query parameters of a request. An empty value is none. @throws ApiError */
export function parseQuery<T extends z.ZodType>(schema: T, request: Request): z.infer<T> {
  return parse(schema, Object.fromEntries(Object.entries(request.query).filter(([, value]) => value !== '')));
}

/** The headers of a request that the schema names. @throws ApiError */
export function parseHeaders<T extends z.ZodObject>(schema: T, request: Request): z.infer<T> {
  return parse(schema, Object.fromEntries(Object.keys(schema.shape).map((name) => [name, request.get(name)])));
}

/** The JSON body of a request. @throws ApiError */
export function parseBody<T extends z.ZodType>(schema: T, request: Request): z.infer<T> {
  if (request.body === undefined && !isOptional(schema)) {
    throw new ApiError('invalid_request', 'send a JSON body (content-type: application/json)');
  }
  return parse(schema, request.body);
}

/** Whether a part may be left out. */
export function isOptional(schema: z.ZodType): boolean {
  return schema.safeParse(undefined).success;
}

function describe(issue: z.core.$ZodIssue): { message: string; param: string } {
  const [inner] = issue.code === 'invalid_union' ? closest(issue.errors) : [];
  if (inner) return describe({ ...inner, path: [...issue.path, ...inner.path] });
  // Keys of the client's own may be part of it.
  const param = issue.path.join('.').slice(0, MAX_PARAM_LENGTH);
  return { param, message: param ? `${param}: ${issue.message}` : issue.message };
}

/** Of the ways in which a union did not match, the one that came furthest. */
function closest(errors: z.core.$ZodIssue[][]): z.core.$ZodIssue[] {
  return errors.toSorted((a, b) => reach(b) - reach(a))[0] ?? [];
}

/** How far a schema came before it failed: not even to the value itself, if that is of another type. */
function reach(issues: z.core.$ZodIssue[]): number {
  let furthest = 0;
  for (const { code, path } of issues) furthest = Math.max(furthest, path.length + (code === 'invalid_type' ? 0 : 1));
  return furthest;
}
