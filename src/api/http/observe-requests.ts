import type { Request, RequestHandler } from 'express';
import type { Metrics } from '../../telemetry/metrics.ts';
import { secondsSinceBegun } from './request-log.ts';
import { isStream } from './event-stream.ts';

/** Counts what is answered, and how long that takes. */
export function countRequests(metrics: Metrics): RequestHandler {
  return (request, response, next) => {
    response.once('close', () => {
      const { method } = request;
      const route = routeOf(request);
      // Whoever hangs up before the answer begins gets none.
      const status = response.headersSent ? String(response.statusCode) : 'none';
      metrics.httpRequests.inc({ method, route, status });
      // Streams last as long as their turns; what they take says nothing.
      if (!isStream(response)) metrics.httpDuration.observe({ method, route }, secondsSinceBegun(response));
    });
    next();
  };
}

/** The pattern of the route, never the path: that would be another label with every id. */
export function routeOf({ route }: Request): string {
  const { path }: { path?: unknown } = route ?? {};
  return typeof path === 'string' ? path : 'none';
}
