import { randomUUID } from 'node:crypto';
import { ApplicationFailure, CancelledFailure, Context } from '@temporalio/activity';
import type { Appended, ThreadInput } from '../src/core/history.ts';
import type { NewRecord } from '../src/core/records/log.ts';
import type { Dependencies } from './dependencies.ts';
import { WORKER_SHUTDOWN } from '../src/temporal/own-attempts.ts';
import { rejectResetRun } from '../src/temporal/reject-reset-run.ts';
import { withHeartbeat } from '../src/temporal/activity-heartbeat.ts';
import { retryWhileUnavailable } from '../src/engine/retry.ts';
import { foundServers } from '../src/tools/toolset.ts';
import { errorMessage } from '../src/lib/errors.ts';

/**
 * Connects to the agent's MCP servers before the first model call and records which are available. The others are not
 * an error: the record and the model's prompt list them as unavailable.
 *
 * A separate activity if a turn begins with the calls that its input allows: it is retried if its worker is lost while
 * it connects. A call that runs at most once, and had to connect first, would have an unknown outcome.
 */
export function createConnectTools({ catalog, toolsets, conversations, bus, log, draining }: Dependencies) {
  return async function connectTools(input: ThreadInput): Promise<Appended> {
    rejectResetRun(input);
    const { turnId, threadId, specHash } = input;
    const connect = async (): Promise<Appended> => {
      const signal = AbortSignal.any([Context.current().cancellationSignal, draining]);
      try {
        const spec = await retryWhileUnavailable(() => catalog.agents.spec(specHash), signal);
        const toolset = await toolsets.load(spec, input, signal);
        const found = foundServers(toolset);
        for (const server of toolset.unavailable) log.warn({ turnId, ...server }, 'an MCP server is not available');
        const at = new Date().toISOString();
        const isKnown = found.servers.length > 0 || found.unavailable !== undefined;
        const records: NewRecord[] = isKnown ? [{ kind: 'mcp.initialize', at, threadId, ...found }] : [];
        const stamp = randomUUID();
        conversations.remember({ turnId, stamp }, records);
        return { records, stamp };
      } catch (error) {
        if (Context.current().cancellationSignal.aborted)
          throw new CancelledFailure('the turn no longer waits for its tools');
        if (draining.aborted) throw ApplicationFailure.retryable('the worker is shutting down', WORKER_SHUTDOWN);
        // Outages were retried above. The turn works without this record, but not if the activity is retried for ever.
        throw ApplicationFailure.nonRetryable(errorMessage(error), 'internal_error');
      }
    };
    return withHeartbeat(async (attempts) => attempts.addTo(await connect()), {
      onCancelHint: (listener) => bus.onHint(`cancel:${turnId}`, listener),
    });
  };
}
