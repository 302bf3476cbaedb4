import type { ServerResponse } from 'node:http';
import type { Request, Response } from 'express';
import type { z } from 'zod';
import type { Caller } from '../../core/subject.ts';
import { namingUnknownKeys } from '../../lib/unknown-keys.ts';
import type { StorageAdmission } from '../../engine/storage-quota.ts';
import { ApiError, type RequestIssue } from './errors.ts';
import type { LogScope } from '../../telemetry/log-context.ts';

/** What middleware determined about a request. */
export interface RequestContext {
  /** Its log context, as far as it is currently known. */
  logScope: LogScope;
  /** When it arrived, of `performance.now()`. */
  startedAt: number;
  caller: Caller;
  /** Set if the request exceeds the rate limit, or would store more than its caller may. */
  rateLimitError?: ApiError;
  /** Admits a request of the caller that stores this many bytes. */
  admitStorage?: (bytes: number) => Promise<StorageAdmission>;
  /** The size of the unpacked body, in bytes. */
  bodyBytes?: number;
}

/** Extends the context of a request. The request log begins it, and authentication sets the caller. */
export function setContext(response: Response, context: Partial<RequestContext>): void {
  Object.assign(response.locals, context);
}

export function contextOf(response: ServerResponse): RequestContext {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- one of Express, with what `setContext` has written
  return (response as Response).locals as RequestContext;
}

/** Further problems are left out of an error message. */
const MAX_PROBLEMS = 5;
const MAX_PARAM_LENGTH = 300;

/** Validates a part of a request. @throws ApiError `invalid_request`, which names the field */
export function parsePart<T extends z.ZodType>(schema: T, value: unknown, where: RequestIssue['in']): z.infer<T> {
  const parsed = schema.safeParse(value, { reportInput: true, error: namingUnknownKeys });
  if (parsed.success) return parsed.data;
  const issues = parsed.error.issues.slice(0, MAX_PROBLEMS).map(innermost);
  const problems = issues.map(describe);
  throw new ApiError('invalid_request', problems.map(({ message }) => message).join('; '), {
    param: problems[0]?.param,
    issues: issues.map((issue) => ({ in: where, path: issue.path, code: codeOf(issue), message: issue.message })),
  });
}

/** The query parameters of a request. An empty value counts as absent. @throws ApiError */
export function parseQuery<T extends z.ZodType>(schema: T, request: Request): z.infer<T> {
  const present = Object.entries(request.query).filter(([, value]) => value !== '');
  return parsePart(schema, Object.fromEntries(present), 'query');
}

/** The headers of a request that the schema names. @throws ApiError */
export function parseHeaders<T extends z.ZodObject>(schema: T, request: Request): z.infer<T> {
  const named = Object.keys(schema.shape).map((name) => [name, request.get(name)]);
  return parsePart(schema, Object.fromEntries(named), 'header');
}

/** The JSON body of a request. @throws ApiError */
export function parseBody<T extends z.ZodType>(schema: T, request: Request): z.infer<T> {
  if (request.body === undefined && !isOptional(schema)) {
    const message = 'send a JSON body (content-type: application/json)';
    throw new ApiError('invalid_request', message, { issues: [{ in: 'body', path: [], code: 'missing', message }] });
  }
  return parsePart(schema, request.body, 'body');
}

/** Whether a part of a request may be absent. */
export function isOptional(schema: z.ZodType): boolean {
  return schema.safeParse(undefined).success;
}

/** The issue that best explains why no member of a union fits. */
function innermost(issue: z.core.$ZodIssue): z.core.$ZodIssue {
  const [inner] = issue.code === 'invalid_union' ? closest(issue.errors) : [];
  return inner ? innermost({ ...inner, path: [...issue.path, ...inner.path] }) : issue;
}

function codeOf({ code, input }: z.core.$ZodIssue): string {
  return ['invalid_type', 'invalid_value'].includes(code) && input === undefined ? 'missing' : code;
}

function describe(issue: z.core.$ZodIssue): { message: string; param: string } {
  // The path may contain keys that the client chose, so its length is bounded.
  const param = issue.path.join('.').slice(0, MAX_PARAM_LENGTH);
  return { param, message: param ? `${param}: ${issue.message}` : issue.message };
}

/** The issues of the union member that matched the value most deeply; of several, the one with the fewest. */
function closest(errors: z.core.$ZodIssue[][]): z.core.$ZodIssue[] {
  return errors.toSorted((a, b) => matchedDepth(b) - matchedDepth(a) || a.length - b.length)[0] ?? [];
}

/**
 * How deeply a schema matched before it failed. A value of another type does not count as matched itself, and neither
 * does a value that is not the literal that identifies a member of a union.
 */
function matchedDepth(issues: z.core.$ZodIssue[]): number {
  let deepest = 0;
  for (const issue of issues) {
    const isOther = issue.code === 'invalid_type' || (issue.code === 'invalid_value' && issue.values.length === 1);
    deepest = Math.max(deepest, issue.path.length + (isOther ? 0 : 1));
  }
  return deepest;
}
