import type { IRouter, Request, RequestHandler, Response } from 'express';
import { z } from 'zod';
import { mayOnServer, refusalOnServer, type ServerAction } from '../../auth/rights.ts';
import type { Caller } from '../../core/subject.ts';
import { ApiError, toApiError, type ErrorCode } from './errors.ts';
import { formBody, largeJsonBody, smallJsonBody } from './json-body.ts';
import { contextOf, parseBody, parseHeaders, parseQuery, setContext, type RequestContext } from './request.ts';

export const METHODS = ['get', 'post', 'put', 'patch', 'delete'] as const;

type Method = (typeof METHODS)[number];

/** The groups of routes in the documentation, in order. */
export const TAGS = {
  Agents: 'registered agents and their versions',
  Sessions: 'conversations with registered agents',
  'Draft sessions': 'conversations with an agent that is still being edited',
  Turns: 'the turns of sessions and drafts: an input, and everything that follows from it, streamed as it happens',
  Events: 'the events of turns, and the files in them',
  Runs: 'runs of an agent with a conversation that the client keeps',
  'MCP sign-in': 'the connections of users to MCP servers that require a sign-in',
  Actions: 'the tool calls of all sessions that wait for a person or a client',
  Webhooks: 'notifications of ended turns and changed actions; only for admins',
  Operations: 'health, metrics, MCP servers and this description',
  'Agent sessions': 'runs of an agent: a task, and everything that follows from it',
  'Agent webhooks': 'notifications of changed sessions; only for admins',
  Schedules: 'times at which sessions are created',
  'Agent catalog': 'the agents that sessions may name, and the skills and environments of which they are made',
};

/** The paths that require a key, if the server has any. */
export const PRIVATE_PATHS = ['/v1', '/api/v2', '/mcp', '/metrics'];

/** The paths below them that need no key: a browser is sent to them. A key that is sent nevertheless is checked. */
export const PUBLIC_PATHS = [
  '/v1/agents/mcp/authorize',
  '/v1/agents/mcp/callback',
  '/v1/agents/mcp/client-metadata',
  '/api/v2/openapi.json',
];

/** The paths below them whose GET requests need no key if the session is shared. Their routes check that. */
export const SHARED_PATHS = [
  '/api/v2/sessions/:id',
  '/api/v2/sessions/:id/status',
  '/api/v2/sessions/:id/changes',
  '/api/v2/sessions/:id/events',
  '/api/v2/sessions/:id/resources/:bucket/*key',
  '/api/v2/sessions/:id/files/:file_id',
];

/** The descriptions of the API, also below these paths: they need no key, and their requests are counted by address. */
export const DESCRIPTION_PATHS = ['/openapi.json', '/docs'];

/** The path parameters of all routes. */
export const PATH_PARAMETERS = {
  agent_name: z.string().meta({ description: 'name of a registered agent', example: 'helper' }),
  agent_version: z.string().meta({ description: 'version number of the agent, from 1', example: '3' }),
  session_id: z.string().meta({ description: 'id of a session or a draft', example: 'ses_01kac6dw3e8h4v0m6f2q9x7r5t' }),
  turn_id: z.string().meta({ description: 'id of a turn of the session', example: 'turn_01kac6f1zy5c3n8s7k4b2g9d6w' }),
  run_id: z.string().meta({ description: 'id of a run', example: 'run_01kac6f1zy5c3n8s7k4b2g9d6w' }),
  file_id: z.string().meta({
    description: 'id of a file of the session, from the URL in an event',
    example: '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',
  }),
  connection_id: z.string().meta({
    description: 'id of a connection to an MCP server',
    example: 'con_01kac6dw3e8h4v0m6f2q9x7r5t',
  }),
  action_id: z.string().meta({ description: 'id of an action', example: 'act_01kac6f1zy5c3n8s7k4b2g9d9z_0' }),
  webhook_id: z.string().meta({ description: 'id of a webhook', example: 'whk_01kac7x2m4b8d6f0h3k5p9r1tv' }),
  schedule_id: z.string().meta({
    description: 'id of a schedule',
    example: '4b0f8a4e-5f0c-4c38-9d2b-7a3f3c1f2d55',
    format: 'uuid',
  }),
  asset: z.string().meta({ description: 'name of the file', example: 'start.js' }),
  bucket: z.string().meta({ description: 'kind of the resource, from the URL in an event', example: 'files' }),
  key: z.string().meta({
    description: 'name of the resource, from the URL in an event',
    example: '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',
  }),
  event_index: z.string().meta({
    description: 'position of an event in the session, from 0',
    example: '4',
    override: { type: 'integer', example: 4, minimum: 0, maximum: 999_999_999 },
  }),
  agent: z.string().meta({ description: 'name of a registered agent; it may contain a /', example: 'order-desk' }),
  revision: z.string().meta({ description: 'number of a revision of the agent, from 1', example: '3' }),
  skill: z.string().meta({ description: 'name of a skill; it may contain a /', example: 'acme/refunds' }),
  environment: z.string().meta({ description: 'id of an environment; it may contain a /', example: 'shop' }),
  id: z
    .string()
    .meta({ description: 'id of a session', example: '0199a8d4-9d1c-7e32-8f5d-2f6a3c1b9e04', format: 'uuid' }),
};

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

/** The body of requests that take none. Some clients send an empty object. */
const NOTHING = json(z.strictObject({}).optional(), {});

/** Declares that the handler writes the response itself, in one of these media types. */
interface Written {
  written: Record<string, Content>;
}

type Answer = Content | Written | undefined;

/** What a route takes and returns. It parses requests, types the handler, and is the documentation. */
interface Declaration<
  Q extends z.ZodObject = z.ZodObject,
  H extends z.ZodObject = z.ZodObject,
  B extends z.ZodType = z.ZodType,
  A extends Answer = Answer,
> {
  /** The operation id, for generated clients. */
  id: string;
  tag: keyof typeof TAGS;
  summary: string;
  description?: string;
  query?: Q;
  headers?: H;
  /** The body. Required, unless its schema accepts undefined. Without it, requests other than GET may have no keys. */
  body?: Content<B>;
  /** Whether the body may be large: texts, files, schemas. */
  largeBody?: true;
  /**
   * Sessions keep what is in the body, so that it counts for the caller's quota of stored bytes. Not for what a running turn
   * waits for: a decision or a result must not wait for space.
   */
  stores?: true;
  /** The body is that of an HTML form, not JSON. */
  isForm?: true;
  /** The response; without it, an empty one. */
  answer?: A;
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
  /** The action that the caller must have the right to. */
  requires?: ServerAction;
  /** The errors of the handler, beyond those that follow from the declaration; see `refusals`. */
  errors?: ErrorCode[];
}

/** A request whose parts have been validated. */
interface Call<P extends string, Q, H, B> {
  params: Record<PathParameter<P>, string>;
  query: Q;
  headers: H;
  body: B;
  /** The authenticated caller; only private routes have one. */
  caller: P extends `/v1/${string}` | `/api/v2/${string}` | '/mcp' ? Caller : undefined;
  /** Set if the request exceeds the rate limit or the quota of stored bytes; only with `handlesRateLimit`. */
  rateLimitError?: RequestContext['rateLimitError'];
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

/** Declares a method of a path. The declaration types the handler and parses its requests. */
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
  const { query, headers, answer, requires, handlesRateLimit, largeBody, stores, isForm } = declaration;
  const body = declaration.body ?? (method === 'get' ? undefined : NOTHING);
  const status = successOf({ answer, ...(declaration.status && { status: declaration.status }) });
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
    // A handler that must know whether its answer was delivered has sent it.
    if (response.writableEnded) return;
    if (!answer) response.status(status).end();
    else if (!('written' in answer)) response.status(status).json(returned);
  };
  const readBody = !body ? [] : isForm ? formBody : largeBody ? largeJsonBody : smallJsonBody;
  return {
    method,
    path,
    declaration: { ...declaration, ...(body && { body }) },
    handlers: [check, ...readBody, ...(stores ? [checkStorage] : []), respond],
  };
}

/** The status of a route's response, unless it is an error. */
export function successOf({ answer, status }: Pick<Declaration, 'answer' | 'status'>): 200 | 201 | 202 | 204 | 302 {
  return status ?? (answer ? 200 : 204);
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
