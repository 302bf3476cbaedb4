import { SpanKind, SpanStatusCode, trace, type Span } from '@opentelemetry/api';
import type { CallResponse } from './call-outcome.ts';
import type { McpEndpoint } from './registry.ts';
import type { Metrics } from '../telemetry/metrics.ts';

interface InstrumentedTool {
  metrics: Metrics;
  endpoint: McpEndpoint;
  tool: string;
}

const READ = 'resources/read';

/** The spans of calls that read a resource. */
const reads = new WeakSet<Span>();

/** Marks the call in progress as a read: only its connection can tell `read_resource` from a tool of its server. */
export function noteRead(): void {
  const span = trace.getActiveSpan();
  if (span) reads.add(span);
}

/**
 * Measures a tool call, or its part between two questions to the user, and records it as a span of the turn's trace
 * (OpenTelemetry, "Semantic conventions for Model Context Protocol"). The URI of a resource is not in it: the model has
 * written it, and spans have no content.
 */
export async function instrumentCall<T extends CallResponse | { status: 'asks' }>(
  { metrics, endpoint, tool }: InstrumentedTool,
  call: () => Promise<T>,
): Promise<T> {
  const endStep = metrics.steps.begin();
  // An inline server's name is the agent author's choice, so it must not become a label.
  const isRegistered = 'command' in endpoint || endpoint.trusted;
  const stop = metrics.toolCalls.startTimer({ server: isRegistered ? endpoint.name : 'inline' });
  const attributes = {
    'mcp.method.name': 'tools/call',
    'everturn.mcp_server.name': endpoint.name,
  };
  const options = { kind: SpanKind.CLIENT, attributes };
  return trace.getTracer('everturn').startActiveSpan(`tools/call ${tool}`, options, async (span) => {
    try {
      const result = await call();
      const { status } = result;
      const isToolError = status === 'result' && result.isError;
      stop({ outcome: isToolError ? 'error' : status });
      endStep(status === 'not_sent' || status === 'unknown' ? 'badly' : 'well');
      if (isToolError) fail(span, 'tool_error');
      else if (status !== 'result' && status !== 'asks' && status !== 'input_required') fail(span, status);
      return result;
    } finally {
      if (reads.has(span)) span.updateName(READ).setAttribute('mcp.method.name', READ);
      else span.setAttributes({ 'gen_ai.operation.name': 'execute_tool', 'gen_ai.tool.name': tool });
      span.end();
    }
  });
}

function fail(span: Span, type: string): void {
  span.setAttribute('error.type', type);
  span.setStatus({ code: SpanStatusCode.ERROR });
}
