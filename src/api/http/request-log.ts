import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Express, Request, RequestHandler, Response } from 'express';
import type { Options } from 'pino-http';
import { newId } from '../../engine/new-id.ts';
import { addLogContext, withLogContext, type LogScope } from '../../telemetry/log-context.ts';
import { isId } from '../../core/ids.ts';

/** Gives a request its id, which stands in its answer and in all that is logged for it. */
export const beginRequest: RequestHandler = (request, response, next) => {
  const requestId = requestIdOf(request);
  const scope: LogScope = { requestId };
  response.set('x-request-id', requestId);
  response.locals['logScope'] = scope;
  response.locals['begunAt'] = performance.now();
  withLogContext(scope, next);
};

/** How long ago the request came. */
export function secondsSinceBegun({ locals }: Response): number {
  return (performance.now() - Number(locals['begunAt'])) / 1000;
}

/** What a path names stands in every line of the request. */
export function namePathInLog(app: Express): void {
  const names = { session_id: 'sessionId', turn_id: 'turnId' } as const;
  for (const [parameter, name] of Object.entries(names)) {
    app.param(parameter, (_request, _response, next, id: string) => {
      if (isId(id)) addLogContext({ [name]: id });
      next();
    });
  }
}

/** One line for each request, at a level that says whether somebody should care. */
export const requestLog: Options = {
  genReqId: (_request, response) => String(response.getHeader('x-request-id')),
  customLogLevel: (_request, response, error) => (error || response.statusCode >= 500 ? 'warn' : 'debug'),
  // The answer may end outside of its request's scope.
  customSuccessObject: (_request, response, values: object) => ({ ...values, ...scopeOf(response) }),
  customErrorObject: (_request, response, _error, values: object) => ({ ...values, ...scopeOf(response) }),
  serializers: {
    req: ({ method, url }: IncomingMessage) => ({ method, url }),
    res: ({ statusCode }: ServerResponse) => ({ statusCode }),
  },
};

/** What the lines of a request belong to, as far as is known by now. */
export function scopeOf(response: ServerResponse): LogScope {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- set where the request began
  return (response as Response).locals['logScope'] as LogScope;
}

/** A proxy's id for the request if it sends one, so that its log and ours can be read together; else one of ours. */
function requestIdOf(request: Request): string {
  const given = request.get('x-request-id');
  return given !== undefined && REQUEST_ID.test(given) ? given : newId('req');
}

/** UUIDs, hex, and the ids of the usual proxies; nothing that is long, or could be taken for something else in a log. */
const REQUEST_ID = /^[\w.:=-]{8,128}$/;
