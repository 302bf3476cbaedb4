import type { IRouter, Request, RequestHandler, Response } from 'express';
import { z } from 'zod';
import { mayOnServer, refusalOnServer, type Caller, type ServerAction } from '../../auth/rights.ts';
import { ApiError, type ErrorCode } from './errors.ts';
import { largeJsonBody, smallJsonBody } from './json-body.ts';
import { contextOf, parseBody, parseHeaders, parseQuery, type RequestContext } from './request.ts';

export const METHODS = ['get', 'post', 'put', 'patch', 'delete'] as const;

type Method = (typeof METHODS)[number];

/** Groups of routes in the documentation, in its order. */
export const TAGS = {
  Agents: 'what conversations are with',
  Sessions: 'conversations with registered agents',
  'Draft sessions': 'conversations with an agent that is still being written',
  Turns: 'of sessions and drafts alike: one request with all that it leads to, as it happens',
  Events: 'what has happened in turns, and the files in it',
  Operations: 'for those who run the server, and this description',
};

/** What is under these asks for a key, if there are any. */
export const PRIVATE_PATHS = ['/v1', '/metrics'];

/** What can stand in a path: every path uses these names. */
export const PATH_PARAMETERS = {
  agent_name: z.string().meta({ description: 'name of a registered agent', example: 'helper' }),
  agent_version: z.string().meta({ description: 'number of a version of the agent, from 1', example: '3' }),
  session_id: z.string().meta({ description: 'id of a session or a draft', example: 'ses_01kac6dw3e8h4v0m6f2q9x7r5t' }),
  turn_id: z.string().meta({ description: 'id of a turn of the session', example: 'turn_01kac6f1zy5c3n8s7k4b2g9d6w' }),
  file_id: z.string().meta({
    description: 'id of a file of the session, from the URL that stands in an event',
    example: '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',
  }),
  asset: z.string().meta({ description: 'name of the file', example: 'start.js' }),
};

type PathParameter<P extends string> = P extends `${string}:${infer Name}/${infer Rest}`
  ? Name | PathParameter<`/${Rest}`>
  : P extends `${string}:${infer Name}`
    ? Name
    : never;

/** Content of one media type, and what it looks like. */
interface Content<S extends z.ZodType = z.ZodType> {
  schema: S;
  example: z.output<S>;
}

/** JSON: the body of a request, or what a handler returns. */
export function json<S extends z.ZodType>(schema: S, example: z.output<S>): Content<S> {
  return { schema, example };
}

/** An answer that the handler writes to the response itself, in one of these media types. */
interface Written {
  written: Record<string, Content>;
}

type Answer = Content | Written | undefined;

/** All that a route takes and gives. It is the documentation, and what the handler is called with and held to. */
interface Declaration<
  Q extends z.ZodObject = z.ZodObject,
  H extends z.ZodObject = z.ZodObject,
  B extends z.ZodType = z.ZodType,
  A extends Answer = Answer,
> {
  /** Name of the operation, for generated clients. */
  id: string;
  tag: keyof typeof TAGS;
  summary: string;
  description?: string;
  query?: Q;
  headers?: H;
  /** JSON. It is mandatory, unless its schema takes undefined. */
  body?: Content<B>;
  /** Its body may be large: texts, files, schemas. */
  largeBody?: true;
  /** None: 204. */
  answer?: A;
  /** Of the answer; 200 unless said otherwise. */
  status?: 201;
  /**
   * It may be a repetition of what has been done, and that must not be refused as one request too many: the handler
   * decides.
   */
  handlesRateLimit?: true;
  /** When there may be nothing to answer: the handler says so with 204. */
  nothing?: string;
  /** What the caller must be allowed to do. */
  requires?: ServerAction;
  /** What it may be refused with, beyond what any route may be; see `refusals`. */
  errors?: ErrorCode[];
}

/** A request whose parts have been validated. */
interface Call<P extends string, Q, H, B> {
  params: Record<PathParameter<P>, string>;
  query: Q;
  headers: H;
  body: B;
  /** Whose request it is; only routes under `/v1` ask. */
  caller: P extends `/v1/${string}` ? Caller : undefined;
  rateLimitError: RequestContext['rateLimitError'];
  request: Request;
  response: Response;
}

type Returned<A> = A extends Content<infer S> ? z.output<S> : void;

export interface Route {
  method: Method;
  path: string;
  declaration: Declaration;
  handlers: RequestHandler[];
}

/** A method on a path. Types flow from the declaration into the handler, and a request is parsed as it says. */
export function route<
  P extends string,
  Q extends z.ZodObject = z.ZodObject<Record<string, never>>,
  H extends z.ZodObject = z.ZodObject<Record<string, never>>,
  B extends z.ZodType = z.ZodUndefined,
  A extends Answer = undefined,
>(
  method: Method,
  path: PathParameter<P> extends keyof typeof PATH_PARAMETERS ? P : never,
  declaration: Declaration<Q, H, B, A>,
  handler: (call: Call<P, z.output<Q>, z.output<H>, z.output<B>>) => Returned<A> | Promise<Returned<A>>,
): Route {
  const { query, headers, body, answer, status = 200, requires, handlesRateLimit, largeBody } = declaration;
  const check: RequestHandler = (_request, response, next) => {
    const { caller, rateLimitError } = contextOf(response);
    if (rateLimitError && !handlesRateLimit) throw rateLimitError;
    if (requires) demand(caller, requires);
    next();
  };
  const respond: RequestHandler = async (request, response) => {
    const call = {
      params: request.params,
      query: query && parseQuery(query, request),
      headers: headers && parseHeaders(headers, request),
      body: body && parseBody(body.schema, request),
      ...contextOf(response),
      request,
      response,
    };
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- parsed just now
    const returned = await handler(call as unknown as Parameters<typeof handler>[0]);
    if (!answer) response.status(204).end();
    else if (!('written' in answer)) response.status(status).json(returned);
  };
  const readBody = !body ? [] : largeBody ? largeJsonBody : smallJsonBody;
  return { method, path, declaration, handlers: [check, ...readBody, respond] };
}

/** @throws ApiError `forbidden` */
function demand(caller: Caller, action: ServerAction): void {
  if (!mayOnServer(caller, action)) throw new ApiError('forbidden', refusalOnServer(caller, action));
}

/** Serves the routes. Every other method on their paths is answered with 405 and the list of those that are there. */
export function mount(router: IRouter, routes: Route[]): void {
  for (const [path, methods] of Map.groupBy(routes, (route) => route.path)) {
    const at = router.route(path);
    const allowed: string[] = ['OPTIONS'];
    for (const { method, handlers } of methods) {
      at[method](handlers);
      allowed.push(method.toUpperCase());
      if (method === 'get') allowed.push('HEAD');
    }
    const allow = allowed.toSorted().join(', ');
    at.all((request, response) => {
      response.set('allow', allow);
      if (request.method !== 'OPTIONS') {
        throw new ApiError('method_not_allowed', `${request.method} is not possible here; these are: ${allow}`);
      }
      response.status(204).end();
    });
  }
}
