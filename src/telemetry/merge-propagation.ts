import { context, propagation } from '@opentelemetry/api';

/** Where we are in a trace, as headers for whoever is asked next; none unless traces are recorded. */
export function traceHeaders(): Record<string, string> {
  const headers: Record<string, string> = {};
  propagation.inject(context.active(), headers);
  return headers;
}
