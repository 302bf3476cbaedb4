import { context, propagation, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api';
import type { RequestHandler } from 'express';
import { scopeAttributes } from '../../telemetry/trace-propagation.ts';
import { routeOf } from './observe-requests.ts';
import { scopeOf } from './request-log.ts';

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
