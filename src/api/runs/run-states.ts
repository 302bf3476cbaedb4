import type { SessionState } from '../../core/session-state.ts';
import { runIdsOf } from '../../features/run-support/runs.ts';
import type { RunReading, RunStates } from '../../features/run-support/run-summaries.ts';
import { isUnavailable } from '../../engine/unavailable.ts';
import { loadFiles } from './load-files.ts';
import { runLimitsOf } from './run-limits.ts';
import type { ApiContext } from '../http/context.ts';
import { RunOutput } from './run-output.ts';
import type { RunStatus } from './wire/run.ts';

/**
 * The states of sessions in which runs have a status; an ended run leaves its session in the first one. A run that is
 * `pending` has never begun, or begins in a moment.
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

/** Makes the entry of a run in lists from its log. */
export function createRunStates({ catalog, logs, log }: Pick<ApiContext, 'catalog' | 'logs' | 'log'>): RunStates {
  return {
    after: async ({ id: turnId, session_id: sessionId }, through) => {
      // No row is read for other turns.
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

  async function stateAt(turnId: string, sessionId: string, through: number): Promise<RunReading | undefined> {
    const session = await catalog.sessions.get(sessionId);
    if (session?.type !== 'run') return undefined;
    const output = new RunOutput(runLimitsOf(await catalog.agents.spec(session.spec_hash)));
    for await (const entries of logs.read(turnId)) {
      for (const { record } of entries.filter(({ ordinal }) => ordinal <= through)) {
        output.feed(await loadFiles(record, { blobs: NO_FILES, sessionId }));
      }
      if ((entries.at(-1)?.ordinal ?? 0) >= through) break;
    }
    const leaves = output.isOpen ? undefined : STATES_OF[output.status][0];
    return { leaves, runSummary: JSON.stringify(output.summary({ isOwner: true })) };
  }
}
