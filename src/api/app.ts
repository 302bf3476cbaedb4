import express, { type Express, type NextFunction, type Request, type Response } from 'express';
import helmet from 'helmet';
import { pinoHttp } from 'pino-http';
import type { Config } from '../config.ts';
import { actionRoutes } from './sessions/actions.ts';
import { agentRoutes } from './sessions/agents.ts';
import { LOCAL } from '../auth/api-keys.ts';
import { ANONYMOUS, authenticate } from './http/authenticate.ts';
import type { ApiContext } from './http/context.ts';
import { docsRoutes } from './operations/docs.ts';
import { draftSessionRoutes } from './sessions/draft-sessions.ts';
import { ApiError, sessionErrors, toApiError, type ErrorForm } from './http/errors.ts';
import { eventRoutes } from './sessions/events.ts';
import { timelineRoutes } from './sessions/timeline.ts';
import { fileRoutes } from './sessions/files.ts';
import { healthRoutes } from './operations/health.ts';
import { checkHost, checkOperationsHost } from './http/local-only.ts';
import { mcpServerRoutes } from './operations/mcp-servers.ts';
import { metricsRoutes } from './operations/metrics.ts';
import { PublicLimiter, UnknownKeyLimiter } from './http/address-limiters.ts';
import { withDocument, type Face } from './http/openapi.ts';
import { AGENTS_V2, isAgentsV2 } from './agents-v2/face.ts';
import { mcpRoute } from './agents-v2/mcp/endpoint.ts';
import { SessionReader } from './agents-v2/read-session.ts';
import { agentsV2Routes } from './agents-v2/routes.ts';
import { countRequests, traceRequests } from './http/observe-requests.ts';
import { beginRequest, namePathInLog, requestLog } from './http/request-log.ts';
import { DESCRIPTION_PATHS, mount, PRIVATE_PATHS, PUBLIC_PATHS, SHARED_PATHS, type Route } from './http/route.ts';
import { setContext } from './http/request.ts';
import { RequestLimit } from './http/rate-limit.ts';
import { isRunPath, runErrors } from './runs/errors.ts';
import { runRoutes } from './runs/routes.ts';
import { queueRoutes } from './sessions/queue.ts';
import { sessionListRoutes } from './sessions/session-lists.ts';
import { signInRoutes } from './sessions/sign-ins.ts';
import { sessionStreamRoutes } from './sessions/session-stream.ts';
import { sessionRoutes } from './sessions/sessions.ts';
import { steeringRoutes } from './sessions/steering.ts';
import { turnRoutes } from './sessions/turns.ts';
import { webhookRoutes } from './sessions/webhooks.ts';

/** The HTTP API. */
export function createApp(context: ApiContext): Express {
  const { keyring, issuer, limits, config, connectionLimit } = context;
  const unknownKeys = new UnknownKeyLimiter(limits, context);
  const requestLimit = new RequestLimit(limits, context);
  const publicLimit = new PublicLimiter(limits, context);
  const app = newApp(context);
  app.set('trust proxy', config.trustedProxies);
  app.use((request, _response, next) => {
    checkHost(request, keyring);
    next();
  });
  if (context.tracing) app.use('/v1', traceRequests);
  app.use(DESCRIPTION_PATHS, async (request, response, next) => {
    await publicLimit.count(request, response);
    next();
  });
  app.use(PRIVATE_PATHS, async (request, response, next) => {
    if (isPublic(request) && request.headers.authorization === undefined) {
      await publicLimit.count(request, response);
      next();
      return;
    }
    if (!keyring.isKeyless && isSharedRead(request) && request.headers.authorization === undefined) {
      await publicLimit.count(request, response);
      setContext(response, { caller: ANONYMOUS });
      next();
      return;
    }
    const caller = await authenticate(request, response, { keyring, issuer, unknownKeys });
    const admitStorage = (bytes: number) => context.storageQuota.admit(caller.subject.subjectId, bytes);
    setContext(response, { caller, admitStorage });
    connectionLimit.identified(request.socket);
    await requestLimit.count(request, response);
    next();
  });
  namePathInLog(app);
  const reader = new SessionReader(context);
  mount(app, [...apiRoutes(context), ...agentsV2Routes(context, reader), mcpRoute(context, reader)]);
  handleNotFoundAndErrors(app);
  return app;
}

/** Health and metrics on a separate port for operators, without keys. */
export function createOperationsApp(context: OperationsContext): Express {
  const app = newApp(context);
  app.use((request, response, next) => {
    checkOperationsHost(request, context.config);
    setContext(response, { caller: LOCAL });
    next();
  });
  mount(app, [...healthRoutes({ ...context, saysWhy: () => true }), ...metricsRoutes(context)]);
  handleNotFoundAndErrors(app);
  return app;
}

type OperationsContext = Pick<ApiContext, 'readiness' | 'scrape' | 'metrics' | 'log'> & {
  config: Pick<Config, 'host'>;
};

/** Answers are not pages, except for those that set their own policy: nothing may be framed or loaded. */
const CONTENT_SECURITY_POLICY = {
  useDefaults: false,
  directives: {
    defaultSrc: ["'none'"],
    baseUri: ["'none'"],
    formAction: ["'none'"],
    frameAncestors: ["'none'"],
  },
};

function newApp({ log, metrics }: Pick<ApiContext, 'log' | 'metrics'>): Express {
  const app = express();
  app.disable('x-powered-by');
  app.set('etag', false);
  app.set('query parser', 'simple');

  app.use(beginRequest, countRequests(metrics));
  app.use((request, _response, next) => {
    request.url = withoutPrefix(request.url);
    next();
  });
  app.use(pinoHttp({ logger: log, ...requestLog }));
  app.use(helmet({ hsts: false, contentSecurityPolicy: CONTENT_SECURITY_POLICY }));
  return app;
}

function handleNotFoundAndErrors(app: Express): void {
  app.use((request) => {
    throw new ApiError('not_found', `there is nothing at ${request.method} ${request.path}`);
  });
  app.use((error: unknown, request: Request, response: Response, _next: NextFunction) => {
    answerError(error, request, response);
  });
}

/** The Sessions API, with the routes for operators. */
export const SESSIONS_API: Face = {
  title: 'Everturn',
  description: 'A server that runs AI agent conversations.',
  path: '/openapi.json',
  errors: sessionErrors,
};

/** The routes of the Sessions API and of operators, in order of precedence. */
export function apiRoutes(context: ApiContext): Route[] {
  const routes = [
    ...sessionRoutes(context),
    ...sessionListRoutes(context),
    ...turnRoutes(context),
    ...queueRoutes(context),
    ...steeringRoutes(context),
    ...eventRoutes(context),
    ...timelineRoutes(context),
    ...sessionStreamRoutes(context),
    ...fileRoutes(context),
    ...draftSessionRoutes(context),
    ...signInRoutes(context),
    ...mcpServerRoutes(context),
    ...actionRoutes(context),
    ...webhookRoutes(context),
    ...agentRoutes(context),
    ...runRoutes(context),
    // Without keys only this machine is admitted, so that reasons may be shown.
    ...healthRoutes({ ...context, saysWhy: () => context.keyring.isKeyless }),
    ...docsRoutes(),
    ...metricsRoutes(context),
  ];
  return withDocument(routes, SESSIONS_API, { hasKeys: () => !context.keyring.isKeyless });
}

/** Answers every error in the form of its face. If the headers have been sent, the connection is closed instead. */
function answerError(error: unknown, request: Request, response: Response): void {
  const apiError = toApiError(error);
  const { status, headers, body } = errorFormOf(request).answer(apiError);
  if (status >= 500) request.log.error({ err: apiError.cause ?? error }, apiError.message);
  if (response.headersSent) {
    response.destroy();
    return;
  }
  response.status(status).set(headers).json(body);
}

function errorFormOf({ originalUrl, path }: Request): ErrorForm {
  if (isAgentsV2(originalUrl)) return AGENTS_V2.errors;
  return isRunPath(path) ? runErrors : SESSIONS_API.errors;
}

function isPublic({ baseUrl, path }: Request): boolean {
  return PUBLIC_PATHS.includes(baseUrl + path);
}

const SHARED_READS = new RegExp(
  `^(?:${SHARED_PATHS.map((path) => path.replace(':id', '[\\da-fA-F-]{32,36}').replaceAll(/:\w+/g, '[^/]+').replace(/\*\w+/, '.+')).join('|')})/?$`,
);

/** Whether a request reads a session that may be shared. */
function isSharedRead({ method, baseUrl, path }: Request): boolean {
  return (method === 'GET' || method === 'HEAD') && SHARED_READS.test(baseUrl + path);
}

/** Removes the path in front of `/v1`: an SDK's base URL may have one. */
function withoutPrefix(url: string): string {
  const [path = ''] = url.split('?', 1);
  const at = path.search(/\/v1\/((x\/)?agents|runs)(\/|$)/);
  return at > 0 ? url.slice(at) : url;
}
