import type { DelegationRow } from './delegation-rows.ts';
import type { KernelCatalog } from '../../catalog/catalog.ts';
import type { SessionRequests } from '../agent-sessions/session-requests.ts';
import type { ModelMessage } from '../../core/records/message.ts';
import { ROOT_THREAD } from '../../core/records/threads.ts';
import type { DelegationResult } from '../../core/delegations.ts';
import { unlessNotFound, type TurnLogReader } from '../../engine/turn-log-reader.ts';

/** The outcome of a delegate's work, with the text for the model of its parent. */
export interface DelegateEnd {
  outcome: DelegationResult['outcome'];
  text: string;
}

interface EndSources {
  catalog: {
    sessions: Pick<KernelCatalog['sessions'], 'get'>;
    sessionRequests: Pick<SessionRequests, 'get'>;
    turns: Pick<KernelCatalog['turns'], 'get'>;
  };
  logs: Pick<TurnLogReader, 'firstAndLast' | 'readBackwards'>;
}

/** The number of log entries that are searched for the last text of a delegate without a final message. */
const SEARCHED_ENTRIES = 100;

const NO_ANSWER = 'The agent ended without an answer.';

/** The outcome of a delegate's work; undefined while its turn runs, or is to be started. */
export async function delegateEnd(sources: EndSources, delegation: DelegationRow): Promise<DelegateEnd | undefined> {
  const { child_session_id: sessionId, child_turn_id: turnId, agent } = delegation;
  if (!(await sources.catalog.sessions.get(sessionId))) {
    return { outcome: 'cancelled', text: `The session of the agent ${agent} was deleted before it had answered.` };
  }
  const ends = await unlessNotFound(sources.logs.firstAndLast(turnId));
  if (!ends) return endWithoutTurn(sources, delegation);
  if (!ends.done) return undefined;
  const { end } = ends.done;
  if (end.status === 'done') return { outcome: 'succeeded', text: (end.output && textOf(end.output)) || NO_ANSWER };
  const said = await lastText(sources, turnId);
  const rest = said ? `\nWhat it wrote last:\n\n${said}` : '';
  return end.status === 'error'
    ? { outcome: 'failed', text: `The agent ${agent} failed: ${end.message}${rest}` }
    : { outcome: 'cancelled', text: `The agent ${agent} was stopped before it had answered.${rest}` };
}

async function endWithoutTurn(
  { catalog }: EndSources,
  { child_session_id: sessionId, child_turn_id: turnId, agent }: DelegationRow,
): Promise<DelegateEnd | undefined> {
  const request = await catalog.sessionRequests.get(sessionId);
  // A requested turn may be starting now, even if it was cancelled.
  if (request?.first_turn_id || (await catalog.turns.get(turnId))) return undefined;
  if (request?.start_error) return { outcome: 'failed', text: `The agent could not start: ${request.start_error}` };
  if (request?.cancelled_at) return { outcome: 'cancelled', text: `The agent ${agent} was stopped before it began.` };
  return { outcome: 'failed', text: `The work of the agent ${agent} was lost.` };
}

async function lastText({ logs }: EndSources, turnId: string): Promise<string | undefined> {
  for await (const entries of logs.readBackwards(turnId, { from: Infinity, batch: SEARCHED_ENTRIES })) {
    for (const { record } of entries) {
      if (record.kind === 'model.message' && record.threadId === ROOT_THREAD && textOf(record)) return textOf(record);
    }
    break;
  }
  return undefined;
}

function textOf({ content, refusal }: ModelMessage): string {
  return content.trim() ? content : refusal;
}
