import type { IRouter, Request, RequestHandler, Response } from 'express';
import { z } from 'zod';
import { mayOnServer, refusalOnServer, type ServerAction } from '../../auth/rights.ts';
import type { Caller } from '../../core/subject.ts';
import { ApiError, toApiError, type CommonCode, type ErrorKind } from './errors.ts';
import { formBody, largeJsonBody, rawBody, smallJsonBody } from './json-body.ts';
import { contextOf, parseBody, parseHeaders, parseQuery, setContext, type RequestContext } from './request.ts';

export const METHODS = ['get', 'post', 'put', 'patch', 'delete'] as const;

type Method = (typeof METHODS)[number];

/** How requests are admitted: with a key, if the server has any; without a key, limited by their address; or all. */
export type Access = 'key' | 'address' | 'all';

/** What the routes of a face refer to, and how their paths can be reached. */
export interface FaceFacts {
  /** The paths at and below which the requests of the face are. */
  prefixes: Readonly<Record<string, Access>>;
  /** Paths for browsers, below paths that need a key: they need none, but a key that is sent is checked. */
  publicPaths?: readonly string[];
  /** Paths whose GET requests need no key if the session is shared. Their routes check that. */
  sharedPaths?: readonly string[];
  /** The groups of routes in the documentation, in order. */
  tags: Readonly<Record<string, string>>;
  /** The path parameters of all routes. */
  parameters: Readonly<Record<string, z.ZodType>>;
  /** The errors of routes that need a key, by the path parameter that names the resource that may be missing. */
  notFound?: Readonly<Record<string, ErrorKind>>;
  /** The errors that only this face has. */
  errorKinds?: Readonly<Record<string, ErrorKind>>;
}

/** How requests for a path are admitted. */
export function accessOf({ prefixes }: FaceFacts, path: string): Access {
  const below = Object.keys(prefixes).filter((prefix) => path === prefix || path.startsWith(`${prefix}/`));
  const [longest = ''] = below.toSorted((a, b) => b.length - a.length);
  return prefixes[longest] ?? 'key';
}

/** A path that is at a prefix or below it. */
type Below<Prefix extends string> = Prefix | `${Prefix}/${string}`;

/** The prefixes of a face that need a key. */
type KeyPrefix<F extends FaceFacts> = {
  [P in keyof F['prefixes'] & string]: F['prefixes'][P] extends 'key' ? P : never;
}[keyof F['prefixes'] & string];

/** The names of the parameters in a path: `:name` is one segment, `*name` is one or more. */
type PathParameter<P extends string> = P extends `${infer Segment}/${infer Rest}`
  ? NameOf<Segment> | PathParameter<Rest>
  : NameOf<P>;

type NameOf<Segment extends string> = Segment extends `:${infer Name}` | `*${infer Name}` ? Name : never;

/** The content of one media type, with an example. */
interface Content<S extends z.ZodType = z.ZodType> {
  schema: S;
  example: z.output<S>;
}

/** Declares JSON: the body of a request, or the return value of a handler. */
export function json<S extends z.ZodType>(schema: S, example: z.output<S>): Content<S> {
  return { schema, example };
}

/** Declares JSON whose only field is `data`. */
export function dataOf<S extends z.ZodType>(schema: S, example: z.output<S>) {
  return { schema: z.object({ data: schema }), example: { data: example } };
}

/** The body of requests that take none. Some clients send an empty object. */
const NOTHING = json(z.strictObject({}).optional(), {});

/** Declares that the handler writes the response itself, in one of these media types. */
interface Written {
  written: Record<string, Content>;
}

type ResponseContent = Content | Written | undefined;

/** The query or headers of requests whose route reads none. */
type NoParameters = z.ZodObject<Record<string, never>>;

/** What a route takes and returns. It parses requests, types the handler, and is the documentation. */
interface Declaration<
  Q extends z.ZodObject = z.ZodObject,
  H extends z.ZodObject = z.ZodObject,
  B extends z.ZodType = z.ZodType,
  A extends ResponseContent = ResponseContent,
  F extends FaceFacts = FaceFacts,
> {
  /** The operation id, for generated clients. */
  id: string;
  summary: string;
  description?: string;
  query?: Q;
  headers?: H;
  /** The body. Required, unless its schema accepts undefined. Without it, requests other than GET may have no keys. */
  body?: Content<B>;
  /** Whether the body may be large: texts, files, schemas. */
  largeBody?: true;
  /**
   * The body is stored with a session, and counts for the caller's quota of stored bytes. Not set for decisions and
   * results: a running turn waits for them, so they must not wait for space.
   */
  stores?: true;
  /** The body is that of an HTML form, not JSON. */
  isForm?: true;
  /** The body is bytes of any type, of at most 30 MB: its schema is of a Buffer. */
  isRaw?: true;
  /** The response; without it, an empty one. */
  response?: A;
  /** Schemas that the response refers to by name, such as that of the JSON text in a server-sent event. */
  schemas?: Record<string, z.ZodType>;
  /** The status of the response: by default 200, or 204 if it is empty. */
  status?: 201 | 202 | 302;
  /**
   * The handler applies the rate limit and the quota of stored bytes itself: a request that repeats an earlier one must not
   * be rejected by them, and only the handler can recognize one.
   */
  handlesRateLimit?: true;
  /** Describes when the handler responds with 204 instead. */
  noContent?: string;
  /** Describes when the handler responds with 200 instead of 201, and sends the response itself. */
  existing?: string;
  /** The action that the caller must have the right to. */
  requires?: ServerAction;
  /** The errors of the handler, beyond those that follow from the declaration; see `refusals`. */
  errors?: readonly (CommonCode | (keyof NonNullable<F['errorKinds']> & string))[];
  /** The protocol of the route describes it: it is in no OpenAPI document. */
  isUndocumented?: true;
}

/** A request whose parts have been validated. */
interface Call<F extends FaceFacts, P extends string, Q, H, B> {
  params: Record<PathParameter<P>, string>;
  query: Q;
  headers: H;
  body: B;
  /** The authenticated caller; only routes that need a key have one. */
  caller: P extends Below<KeyPrefix<F>> ? Caller : undefined;
  /** Set if the request exceeds the rate limit or the quota of stored bytes; only with `handlesRateLimit`. */
  rateLimitError?: RequestContext['rateLimitError'];
  request: Request;
  response: Response;
}

type Returned<A> = A extends Content<infer S> ? z.output<S> : void;

/** A declaration with the handler, which the fields above it type. */
interface Handled<
  F extends FaceFacts,
  P extends string,
  Q extends z.ZodObject,
  H extends z.ZodObject,
  B extends z.ZodType,
  A extends ResponseContent,
> extends Declaration<Q, H, B, A, F> {
  handler: (call: Call<F, P, z.output<Q>, z.output<H>, z.output<B>>) => Returned<A> | Promise<Returned<A>>;
}

/** A path below a prefix of a face, all of whose parameters the face has. */
type PathOf<F extends FaceFacts, P extends string> =
  PathParameter<P> extends keyof F['parameters'] ? P & Below<keyof F['prefixes'] & string> : never;

export interface Route {
  method: Method;
  path: string;
  /** The group of the route in the documentation. */
  tag: string;
  declaration: Declaration;
  handlers: RequestHandler[];
  facts: FaceFacts;
}

/**
 * Makes the functions that declare a face's routes: one for each group in the documentation and right that it requires.
 */
export function routesOfFace<const F extends FaceFacts>(facts: F) {
  return (tag: keyof F['tags'] & string, ofAll: Pick<Declaration, 'requires'> = {}) => {
    /** Declares a method of a path. The declaration types its handler and parses its requests. */
    function route<
      P extends string,
      Q extends z.ZodObject = NoParameters,
      H extends z.ZodObject = NoParameters,
      B extends z.ZodType = z.ZodUndefined,
      A extends ResponseContent = undefined,
    >(method: Method, path: PathOf<F, P>, { handler, ...declaration }: Handled<F, P, Q, H, B, A>): Route {
      const { query, headers, response: content, handlesRateLimit, largeBody, stores, isForm, isRaw } = declaration;
      const { requires } = { ...ofAll, ...declaration };
      const body = declaration.body ?? (method === 'get' ? undefined : NOTHING);
      const status = successOf({ response: content, ...(declaration.status && { status: declaration.status }) });
      const check: RequestHandler = (_request, response, next) => {
        const { caller, rateLimitError } = contextOf(response);
        if (rateLimitError && !handlesRateLimit) throw rateLimitError;
        if (requires) authorize(caller, requires);
        next();
      };
      const checkStorage: RequestHandler = async (_request, response, next) => {
        const { admitStorage, bodyBytes = 0, rateLimitError } = contextOf(response);
        if (rateLimitError || !admitStorage) return next();
        const { refusal, answered } = await admitStorage(bodyBytes);
        response.once('close', answered);
        if (refusal && !handlesRateLimit) throw refusal;
        // As with the rate limit, only the handler can recognize a request that has stored its body before.
        if (refusal) setContext(response, { rateLimitError: toApiError(refusal) });
        next();
      };
      const respond: RequestHandler = async (request, response) => {
        const call = {
          params: joined(request.params),
          query: query && parseQuery(query, request),
          headers: headers && parseHeaders(headers, request),
          body: body && parseBody(body.schema, request),
          caller: contextOf(response).caller,
          rateLimitError: contextOf(response).rateLimitError,
          request,
          response,
        };
        // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- parsed above
        const returned = await handler(call as unknown as Parameters<typeof handler>[0]);
        // A handler that must find out whether its response was delivered has sent it.
        if (response.writableEnded) return;
        if (!content) response.status(status).end();
        else if (!('written' in content)) response.status(status).json(returned);
      };
      const readJson = largeBody ? largeJsonBody : smallJsonBody;
      const readBody = !body ? [] : isRaw ? rawBody : isForm ? formBody : readJson;
      return {
        method,
        path,
        tag,
        declaration: { ...ofAll, ...declaration, ...(body && { body }) },
        handlers: [check, ...readBody, ...(stores ? [checkStorage] : []), respond],
        facts,
      };
    }
    return route;
  };
}

/** The status of a route's response, unless it is an error. */
export function successOf({ response, status }: Pick<Declaration, 'response' | 'status'>): 200 | 201 | 202 | 204 | 302 {
  return status ?? (response ? 200 : 204);
}

/** A parameter of several segments as one text. */
function joined(params: Record<string, string | string[]>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(params).map(([name, value]) => [name, typeof value === 'string' ? value : value.join('/')]),
  );
}

/** @throws ApiError `forbidden` */
export function authorize(caller: Caller, action: ServerAction): void {
  if (!mayOnServer(caller, action)) throw new ApiError('forbidden', refusalOnServer(caller, action));
}

/** Serves the routes. Any other method on their paths gets 405 with the list of supported methods. */
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
        throw new ApiError(
          'method_not_allowed',
          `${request.method} is not supported here; supported methods: ${allow}`,
        );
      }
      response.status(204).end();
    });
  }
}
