import type { Request, Response } from 'express';
import type { z } from 'zod';
import type { Caller } from '../../core/subject.ts';
import { ApiError } from './errors.ts';

/** What middleware determined about a request. */
export interface RequestContext {
  caller: Caller;
  /** Set if the request exceeds the rate limit. */
  rateLimitError?: ApiError;
}

/** Extends the context of a request. Authentication sets the caller first. */
export function setContext(response: Response, context: Partial<RequestContext>): void {
  Object.assign(response.locals, context);
}

export function contextOf(response: Response): RequestContext {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `setContext`, beside other locals
  const { caller, rateLimitError } = response.locals as RequestContext;
  return { caller, ...(rateLimitError && { rateLimitError }) };
}

/** Further problems are left out of an error message. */
const MAX_PROBLEMS = 5;
const MAX_PARAM_LENGTH = 300;

/** Validates a part of a request. @throws ApiError `invalid_request`, which names the field */
function parse<T extends z.ZodType>(schema: T, value: unknown): z.infer<T> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const problems = parsed.error.issues.slice(0, MAX_PROBLEMS).map(describe);
  throw new ApiError('invalid_request', problems.map(({ message }) => message).join('; '), {
    param: problems[0]?.param,
  });
}

/** The query parameters of a request. An empty value counts as absent. @throws ApiError */
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

/** Whether a part of a request may be absent. */
export function isOptional(schema: z.ZodType): boolean {
  return schema.safeParse(undefined).success;
}

function describe(issue: z.core.$ZodIssue): { message: string; param: string } {
  const [inner] = issue.code === 'invalid_union' ? closest(issue.errors) : [];
  if (inner) return describe({ ...inner, path: [...issue.path, ...inner.path] });
  // The path may contain keys that the client chose, so its length is bounded.
  const param = issue.path.join('.').slice(0, MAX_PARAM_LENGTH);
  return { param, message: param ? `${param}: ${issue.message}` : issue.message };
}

/** The issues of the union member that matched the value most deeply. */
function closest(errors: z.core.$ZodIssue[][]): z.core.$ZodIssue[] {
  return errors.toSorted((a, b) => matchedDepth(b) - matchedDepth(a))[0] ?? [];
}

/** How deeply a schema matched before it failed. A value of another type does not count as matched itself. */
function matchedDepth(issues: z.core.$ZodIssue[]): number {
  let deepest = 0;
  for (const { code, path } of issues) deepest = Math.max(deepest, path.length + (code === 'invalid_type' ? 0 : 1));
  return deepest;
}
