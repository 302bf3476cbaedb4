import type { RunState } from '../../catalog/archive.ts';
import type { SessionState } from '../../core/session-state.ts';
import { runIdsOf } from '../../engine/runs.ts';
import type { RunStates } from '../../engine/archive-turn.ts';
import { isUnavailable } from '../../engine/unavailable.ts';
import { loadFiles } from './load-files.ts';
import { limitsOf } from './run-limits.ts';
import type { ApiContext } from '../http/context.ts';
import { runHeader } from './run-header.ts';
import { RunOutput } from './run-output.ts';
import type { RunHeader, RunStatus, RunSummary } from './wire/run.ts';

/** What the catalog has of a run for its lists: the rest of it is in the row of its session. */
export type StoredSummary = Omit<RunSummary, keyof RunHeader>;

/**
 * The states of sessions in which runs have a status; those that have ended leave their sessions in the first one. A run
 * that is `pending` has never begun, or begins in a moment.
 */
export const STATES_OF = {
  running: ['running', 'delegating', 'asking', 'paused'],
  requires_action: ['waiting_client', 'waiting_person'],
  completed: ['completed'],
  cancelled: ['cancelled'],
  failed: ['error', 'unanswered', 'timed_out', 'abandoned'],
} as const satisfies Record<RunStatus, readonly SessionState[]>;

/** A list has no items, so the files of results are not read for it. */
const NO_FILES = { get: () => Promise.resolve(Buffer.alloc(0)) };

/** Makes what lists show of a run, from its log. */
export function createRunStates({ catalog, logs, log }: Pick<ApiContext, 'catalog' | 'logs' | 'log'>): RunStates {
  return {
    after: async ({ id: turnId, session_id: sessionId }, through) => {
      // Of other turns, no row is read.
      if (runIdsOf(turnId).sessionId !== sessionId) return undefined;
      try {
        return await stateAt(turnId, sessionId, through);
      } catch (error) {
        if (isUnavailable(error)) throw error;
        log.error({ turnId, err: error }, 'a run whose log cannot be read is listed without its figures');
        return undefined;
      }
    },
  };

  async function stateAt(turnId: string, sessionId: string, through: number): Promise<RunState | undefined> {
    const session = await catalog.sessions.get(sessionId);
    if (session?.type !== 'run') return undefined;
    const output = new RunOutput(limitsOf(await catalog.agents.spec(session.spec_hash)));
    for await (const entries of logs.read(turnId)) {
      for (const { record } of entries.filter(({ ordinal }) => ordinal <= through)) {
        output.feed(await loadFiles(record, { blobs: NO_FILES, sessionId }));
      }
      if ((entries.at(-1)?.ordinal ?? 0) >= through) break;
    }
    const run = output.run(runHeader(session), { isOwner: true });
    const { content: _, output: __, ...summary } = run;
    const leaves = output.isOpen ? undefined : STATES_OF[run.status][0];
    return { leaves, summary: JSON.stringify(withoutHeader(summary)) };
  }
}

function withoutHeader({
  id: _id,
  object: _object,
  agent_name: _name,
  agent_version: _version,
  created_at: _at,
  metadata: _metadata,
  ...summary
}: RunSummary): StoredSummary {
  return summary;
}
