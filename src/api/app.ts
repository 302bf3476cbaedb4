import express, { type Express, type NextFunction, type Request, type Response } from 'express';
import helmet from 'helmet';
import { pinoHttp, type Options } from 'pino-http';
import { newId } from '../log/ids.ts';
import { agentRoutes } from './agents.ts';
import { authenticate } from './auth.ts';
import type { ApiContext } from './context.ts';
import { draftSessionRoutes } from './draft-sessions.ts';
import { ApiError, ERRORS, toApiError } from './errors.ts';
import { eventRoutes } from './events.ts';
import { fileRoutes } from './files.ts';
import { healthRoutes } from './health.ts';
import { sessionRoutes } from './sessions.ts';
import { turnRoutes } from './turns.ts';

const MAX_BODY = '30mb';

/** The HTTP API. */
export function createApp(context: ApiContext): Express {
  const app = express();
  app.disable('x-powered-by');
  app.set('etag', false);
  app.set('query parser', 'simple');

  app.use((request, response, next) => {
    const requestId = newId('req');
    response.locals['requestId'] = requestId;
    response.set('x-request-id', requestId);
    request.url = withoutPrefix(request.url);
    next();
  });
  app.use(pinoHttp({ logger: context.log, ...requestLog }));
  app.use(
    helmet({ hsts: false, contentSecurityPolicy: { useDefaults: false, directives: { defaultSrc: ["'none'"] } } }),
  );
  healthRoutes(app, context);
  app.use('/v1', (request, response, next) => {
    response.locals['subject'] = authenticate(request, context.config.apiKeys);
    next();
  });
  // Whatever the client calls it, a body is JSON here. Strict is off, so that what is not an object is named as such.
  app.use(express.json({ limit: MAX_BODY, strict: false, type: () => true }));
  sessionRoutes(app, context);
  draftSessionRoutes(app, context);
  turnRoutes(app, context);
  eventRoutes(app, context);
  fileRoutes(app, context);
  agentRoutes(app, context);
  app.use((request) => {
    throw new ApiError('not_found', `there is nothing at ${request.method} ${request.path}`);
  });
  app.use((error: unknown, request: Request, response: Response, _next: NextFunction) => {
    answerError(error, request, response);
  });
  return app;
}

/** Every error is answered in one form; one that comes when the answer is on its way can only cut that off. */
function answerError(error: unknown, request: Request, response: Response): void {
  const apiError = toApiError(error);
  const { code, message, param } = apiError;
  const place: { status: number; type: string; retryAfter?: number } = ERRORS[code];
  if (place.status >= 500) request.log.error({ err: apiError.cause ?? error }, message);
  if (response.headersSent) {
    response.destroy();
    return;
  }
  if (place.retryAfter !== undefined) response.set('retry-after', String(place.retryAfter));
  response.status(place.status).json({ error: { message, type: place.type, code, ...(param && { param }) } });
}

/** SDKs may be given a base URL with a path of its own in front of `/v1`. */
function withoutPrefix(url: string): string {
  const at = url.search(/\/v1\/(x\/)?agents(\/|$|\?)/);
  return at > 0 ? url.slice(at) : url;
}

/** One line for each request, at a level that says whether somebody should care. */
const requestLog: Options = {
  genReqId: (_request, response) => String(response.getHeader('x-request-id')),
  customLogLevel: (_request, response, error) => (error || response.statusCode >= 500 ? 'warn' : 'debug'),
  serializers: {
    req: ({ id, method, url }: { id: string; method: string; url: string }) => ({ id, method, url }),
    res: ({ statusCode }: { statusCode: number }) => ({ statusCode }),
  },
};
