import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Express, Request, RequestHandler, Response } from 'express';
import type { Options } from 'pino-http';
import { newId } from '../../engine/new-id.ts';
import { addLogContext, withLogContext, type LogScope } from '../../telemetry/log-context.ts';
import { isId } from '../../core/ids.ts';
import { contextOf, setContext } from './request.ts';

/** Assigns the request id, which is in the response and on every log line of the request. */
export const beginRequest: RequestHandler = (request, response, next) => {
  const requestId = requestIdOf(request);
  const logScope: LogScope = { requestId };
  response.set('x-request-id', requestId);
  setContext(response, { logScope, startedAt: performance.now() });
  withLogContext(logScope, next);
};

/** The time since the request arrived. */
export function secondsSinceStart(response: Response): number {
  return (performance.now() - contextOf(response).startedAt) / 1000;
}

/** Adds the session and turn ids of the path to every log line of the request. */
export function namePathInLog(app: Express): void {
  const names = { session_id: 'sessionId', turn_id: 'turnId' } as const;
  for (const [parameter, name] of Object.entries(names)) {
    app.param(parameter, (_request, _response, next, id: string) => {
      if (isId(id)) addLogContext({ [name]: id });
      next();
    });
  }
}

/**
 * Logs each request on one line: failures of the server as warnings, all others for debugging. The reason why a probe
 * fails is logged once, by the check that found it.
 */
export const requestLog: Options = {
  genReqId: (_request, response) => String(response.getHeader('x-request-id')),
  customLogLevel: ({ url }, { statusCode }, error) =>
    (error || statusCode >= 500) && url !== '/readyz' ? 'warn' : 'debug',
  // The response may end outside of its request's log context.
  customSuccessObject: (_request, response, values: object) => ({ ...values, ...contextOf(response).logScope }),
  // Without an error of the response's stream, pino-http makes one of the status, whose stack is of no use.
  customErrorObject: (_request, response, _error, { err, ...values }: { err?: unknown }) => ({
    ...(response.errored && { err }),
    ...values,
    ...contextOf(response).logScope,
  }),
  serializers: {
    req: ({ method, url }: IncomingMessage) => ({ method, url }),
    res: ({ statusCode }: ServerResponse) => ({ statusCode }),
  },
};

/** The id that a proxy sent, so that its log and this one can be correlated; otherwise a new id. */
function requestIdOf(request: Request): string {
  const received = request.get('x-request-id');
  return received !== undefined && REQUEST_ID.test(received) ? received : newId('req');
}

/** Matches UUIDs, hex and the ids of common proxies; rejects long ids and characters that could forge log content. */
const REQUEST_ID = /^[\w.:=-]{8,128}$/;
