import type { Request, RequestHandler } from 'express';
import type { Metrics } from '../../telemetry/metrics.ts';
import { secondsSinceStart } from './request-log.ts';
import { contextOf } from './request.ts';
import { isStream } from './event-stream.ts';
import { context, propagation, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api';
import { scopeAttributes } from '../../telemetry/trace-propagation.ts';

/** Counts responses and measures their duration. */
export function countRequests(metrics: Metrics): RequestHandler {
  return (request, response, next) => {
    response.once('close', () => {
      const { method } = request;
      const route = routeOf(request);
      // The client hung up before the response started.
      const status = response.headersSent ? String(response.statusCode) : 'none';
      metrics.httpRequests.inc({ method, route, status });
      // A stream lasts as long as its turn, so its duration does not measure the server.
      if (!isStream(response)) metrics.httpDuration.observe({ method, route }, secondsSinceStart(response));
    });
    next();
  };
}

/** The pattern of the route. The path would create a new label value for every id. */
function routeOf({ route }: Request): string {
  const { path }: { path?: unknown } = route ?? {};
  return typeof path === 'string' ? path : 'none';
}

/** Records each request as a span, in the caller's trace if it sends one. */
export const traceRequests: RequestHandler = (request, response, next) => {
  const { traceparent, tracestate } = request.headers;
  const carrier = { ...(traceparent && { traceparent }), ...(tracestate && { tracestate }) };
  const parent = propagation.extract(context.active(), carrier);
  const { method } = request;
  const attributes = { 'http.request.method': method };
  const span = trace.getTracer('everturn').startSpan(method, { kind: SpanKind.SERVER, attributes }, parent);
  response.once('close', () => {
    const route = routeOf(request);
    span.updateName(`${method} ${route}`);
    // The session and turn are known only now.
    span.setAttributes({ 'http.route': route, ...scopeAttributes(contextOf(response).logScope) });
    if (response.headersSent) span.setAttribute('http.response.status_code', response.statusCode);
    if (response.statusCode >= 500) span.setStatus({ code: SpanStatusCode.ERROR });
    span.end();
  });
  context.with(trace.setSpan(parent, span), next);
};
