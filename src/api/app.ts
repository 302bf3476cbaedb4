import express, { type Express, type NextFunction, type Request, type Response } from 'express';
import helmet from 'helmet';
import { pinoHttp } from 'pino-http';
import { LOCAL } from '../auth/api-keys.ts';
import type { Config } from '../config.ts';
import type { WebhookFormat } from '../features/webhooks/webhook-format.ts';
import { AGENTS_V2 } from './agents-v2/face.ts';
import { ANONYMOUS, authenticate } from './http/authenticate.ts';
import type { ApiContext } from './http/context.ts';
import { ApiError, ERRORS, standardErrors, toApiError } from './http/errors.ts';
import { faceFinder, prefixesOf, type Face } from './http/face.ts';
import { checkHost, checkOperationsHost } from './http/local-only.ts';
import { countRequests, traceRequests } from './http/observe-requests.ts';
import { withDocument, type DocumentOptions } from './http/openapi.ts';
import { publicLimit, subjectLimit, unknownKeyLimit } from './http/rate-limit.ts';
import { beginRequest, namePathInLog, requestLog } from './http/request-log.ts';
import { setContext } from './http/request.ts';
import { mount, type Route } from './http/route.ts';
import { OPERATIONS } from './operations/face.ts';
import { healthRoutes } from './operations/health.ts';
import { metricsRoutes } from './operations/metrics.ts';
import { RUNS } from './runs/face.ts';
import { SESSIONS } from './sessions/face.ts';

/** The APIs of this server, in order of precedence. */
export const FACES = [SESSIONS, RUNS, OPERATIONS, AGENTS_V2] as const satisfies readonly Face[];

/** The HTTP API. */
export function createApp(context: ApiContext): Express {
  const { keyring, issuer, limits, config, connectionLimit } = context;
  const unknownKeys = unknownKeyLimit(limits, context);
  const countForSubject = subjectLimit(limits, context);
  const countForAddress = publicLimit(limits, context);
  const app = newApp(context);
  app.set('trust proxy', config.trustedProxies);
  app.use((request, _response, next) => {
    checkHost(request, keyring);
    next();
  });
  if (context.tracing) app.use(TRACED, traceRequests);
  app.use(prefixesOf(FACES, 'address'), async (request, response, next) => {
    await countForAddress(request, response);
    next();
  });
  app.use(prefixesOf(FACES, 'key'), async (request, response, next) => {
    const isShared = !keyring.isKeyless && isSharedRead(request);
    const isPublic = PUBLIC_PATHS.has(request.baseUrl + request.path);
    if ((isPublic || isShared) && request.headers.authorization === undefined) {
      await countForAddress(request, response);
      if (isShared) setContext(response, { caller: ANONYMOUS });
      next();
      return;
    }
    const caller = await authenticate(request, response, { keyring, issuer, unknownKeys });
    const admitStorage = (bytes: number) => context.storageQuota.admit(caller.subject.subjectId, bytes);
    setContext(response, { caller, admitStorage });
    connectionLimit.identified(request.socket);
    await countForSubject(request, response);
    next();
  });
  namePathInLog(app);
  mount(
    app,
    documentsOf(context).flatMap(({ routes }) => routes),
  );
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

/** The policy of all responses without their own: they are not pages, so nothing may be framed or loaded. */
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
  app.use(respondToError);
}

/** An OpenAPI document, with the routes that it describes. */
interface Documented {
  options: DocumentOptions;
  routes: Route[];
}

/** The documents, with all routes of the server in order of precedence. */
export function documentsOf(context: ApiContext): Documented[] {
  const faces: readonly Face[] = FACES;
  const tags = Object.assign({}, ...faces.map((face) => face.tags));
  const kinds = [ERRORS, ...faces.map(({ errorKinds = {} }) => errorKinds)].flatMap((table) => Object.values(table));
  return faces.flatMap((face) => {
    const { document: about, errors } = face;
    if (!about) return [];
    const described = faces.filter((one) => one === face || (face === OPERATIONS && !one.document));
    const routes = described.flatMap((one) => one.routes(context));
    const options = { about, errors, tags, kinds };
    return { options, routes: withDocument(routes, face, options, { hasKeys: () => !context.keyring.isKeyless }) };
  });
}

type FaceWithWebhooks = Extract<(typeof FACES)[number], { webhooks: unknown }>;

/** The messages for the webhooks of each face. */
export function webhookFormats(
  services: Pick<ApiContext, 'catalog' | 'logs' | 'log'>,
): Record<FaceWithWebhooks['name'], WebhookFormat> {
  const formats = FACES.flatMap((face: Face) => (face.webhooks ? [[face.name, face.webhooks(services)]] : []));
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- has the faces with webhooks
  return Object.fromEntries(formats) as Record<FaceWithWebhooks['name'], WebhookFormat>;
}

/** Responds to every error in the form of its face. If the headers have been sent, the connection is closed instead. */
function respondToError(error: unknown, request: Request, response: Response, _next: NextFunction): void {
  const apiError = toApiError(error);
  const { status, headers, body } = (findFace(request.path)?.errors ?? standardErrors).toResponse(apiError);
  if (status >= 500) request.log.error({ err: apiError.cause ?? error }, apiError.message);
  if (response.headersSent) {
    response.destroy();
    return;
  }
  response.status(status).set(headers).json(body);
}

const findFace = faceFinder(FACES);

const TRACED = FACES.flatMap((face: Face) => (face.isTraced ? Object.keys(face.prefixes) : []));

const PUBLIC_PATHS = new Set(FACES.flatMap((face: Face) => face.publicPaths ?? []));

const SHARED_READS = FACES.flatMap((face: Face) => face.sharedReads ?? []);

/** Whether a request reads a session that may be shared. */
function isSharedRead({ method, baseUrl, path }: Request): boolean {
  return (method === 'GET' || method === 'HEAD') && SHARED_READS.some((paths) => paths.test(baseUrl + path));
}

const SDK_PATHS = new RegExp(`(?:${FACES.flatMap((face: Face) => face.sdkPaths ?? []).join('|')})(?:/|$)`);

/**
 * Removes the prefix before the paths of an SDK, whose base URL may have one. A path of a face without such an SDK is
 * not changed, even if it ends like a path of an SDK.
 */
function withoutPrefix(url: string): string {
  const [path = ''] = url.split('?', 1);
  const face = findFace(path);
  const at = path.search(SDK_PATHS);
  return at > 0 && (!face || face.sdkPaths) ? url.slice(at) : url;
}
