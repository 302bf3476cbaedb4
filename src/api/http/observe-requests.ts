import type { Request, RequestHandler } from 'express';
import type { Metrics } from '../../telemetry/metrics.ts';
import { secondsSinceBegun, scopeOf } from './request-log.ts';
import { isStream } from './event-stream.ts';
import { context, propagation, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api';
import { scopeAttributes } from '../../telemetry/trace-propagation.ts';

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

/** A request is a span, in the trace of its caller if that has one. */
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
    // What it is about was found out in the meantime.
    span.setAttributes({ 'http.route': route, ...scopeAttributes(scopeOf(response)) });
    if (response.headersSent) span.setAttribute('http.response.status_code', response.statusCode);
    if (response.statusCode >= 500) span.setStatus({ code: SpanStatusCode.ERROR });
    span.end();
  });
  context.with(trace.setSpan(parent, span), next);
};
