import { SpanKind, SpanStatusCode, trace, type Span } from '@opentelemetry/api';
import type { CallOutcome } from './call-outcome.ts';
import type { McpEndpoint } from './registry.ts';
import type { Metrics } from '../telemetry/metrics.ts';

interface ToolToObserve {
  metrics: Metrics;
  endpoint: McpEndpoint;
  tool: string;
}

/** Measures a call of a tool, which is a span of its turn's trace. */
export async function observeTool(
  { metrics, endpoint, tool }: ToolToObserve,
  call: () => Promise<CallOutcome>,
): Promise<CallOutcome> {
  const endStep = metrics.steps.begin();
  // Those that agents bring along have any name.
  const isRegistered = 'command' in endpoint || endpoint.trusted;
  const stop = metrics.toolCalls.startTimer({ server: isRegistered ? endpoint.name : 'inline' });
  const attributes = {
    'mcp.method.name': 'tools/call',
    'gen_ai.operation.name': 'execute_tool',
    'gen_ai.tool.name': tool,
    'everturn.mcp_server.name': endpoint.name,
  };
  const options = { kind: SpanKind.CLIENT, attributes };
  return trace.getTracer('everturn').startActiveSpan(`tools/call ${tool}`, options, async (span) => {
    try {
      const result = await call();
      const outcome = outcomeOf(result);
      stop({ outcome });
      endStep(outcome === 'not_sent' || outcome === 'unknown' ? 'badly' : 'well');
      if (outcome !== 'result') fail(span, outcome === 'error' ? 'tool_error' : outcome);
      return result;
    } finally {
      span.end();
    }
  });
}

function outcomeOf(result: CallOutcome): string {
  return result.status === 'result' && result.isError ? 'error' : result.status;
}

function fail(span: Span, type: string): void {
  span.setAttribute('error.type', type);
  span.setStatus({ code: SpanStatusCode.ERROR });
}
