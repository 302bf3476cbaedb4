import type { Request, Response } from 'express';
import type { z } from 'zod';
import type { Subject } from '../log/records.ts';
import { ApiError } from './errors.ts';

/** What the server knows of a request, beside the request itself. */
export interface RequestContext {
  requestId: string;
  subject: Subject;
}

/** Set for every request behind authentication. */
export function contextOf(response: Response): RequestContext {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- `app.ts` sets it
  return response.locals as RequestContext;
}

/** A path parameter. */
export function param(request: Request, name: string): string {
  const value = request.params[name];
  if (typeof value !== 'string') throw new Error(`the route has no parameter ${name}`);
  return value;
}

/** Validates a part of a request. @throws ApiError `invalid_request` that names the field */
export function parse<T extends z.ZodType>(schema: T, value: unknown): z.infer<T> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const problems = parsed.error.issues.map(describe);
  throw new ApiError('invalid_request', problems.map(({ message }) => message).join('; '), {
    param: problems[0]?.param,
  });
}

/** The JSON body of a request. @throws ApiError */
export function parseBody<T extends z.ZodType>(schema: T, request: Request): z.infer<T> {
  const body: unknown = request.body;
  // Express takes an empty body for an empty object.
  if (body === undefined || request.get('content-length') === '0')
    throw new ApiError('invalid_request', 'send a JSON body (content-type: application/json)');
  return parse(schema, body);
}

function describe(issue: z.core.$ZodIssue): { message: string; param: string } {
  const param = issue.path.join('.');
  const [inner] = issue.code === 'invalid_union' ? closest(issue.errors) : [];
  if (inner) {
    const deeper = describe({ ...inner, path: [...issue.path, ...inner.path] });
    return deeper;
  }
  return { param, message: param ? `${param}: ${issue.message}` : issue.message };
}

/** Of the ways in which a union did not match, the one that came furthest. */
function closest(errors: z.core.$ZodIssue[][]): z.core.$ZodIssue[] {
  const depth = (issues: z.core.$ZodIssue[]): number => Math.max(0, ...issues.map(({ path }) => path.length));
  return errors.toSorted((a, b) => depth(b) - depth(a))[0] ?? [];
}
