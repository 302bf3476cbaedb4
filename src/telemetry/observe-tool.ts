import type { CallOutcome } from '../tools/call-outcome.ts';
import type { McpEndpoint } from '../tools/registry.ts';
import type { Metrics } from './metrics.ts';

/** Measures a call of a tool. */
export async function observeTool(
  metrics: Metrics,
  endpoint: McpEndpoint,
  call: () => Promise<CallOutcome>,
): Promise<CallOutcome> {
  const endStep = metrics.steps.begin();
  // Those that agents bring along have any name.
  const isRegistered = 'command' in endpoint || endpoint.trusted;
  const stop = metrics.toolCalls.startTimer({ server: isRegistered ? endpoint.name : 'inline' });
  const result = await call();
  const { status } = result;
  stop({ outcome: status === 'result' && result.isError ? 'error' : status });
  endStep(status === 'not_sent' || status === 'unknown' ? 'badly' : 'well');
  return result;
}
