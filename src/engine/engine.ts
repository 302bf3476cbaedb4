import type { Logger } from 'pino';
import type { BlobStore } from '../blobs/blob-store.ts';
import type { KernelCatalog } from '../catalog/catalog.ts';
import type { SessionRow } from '../catalog/schema.ts';
import type { Config } from '../config.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { sessionNotFound } from './access.ts';
import type { AgentCheck } from './agent-check.ts';
import type { AnswerStore } from './answer-ended-turn.ts';
import type { AnswerCheck } from './check-answers.ts';
import type { SharedBudgetOf } from './control-turn.ts';
import type { EditCheck } from './edited-arguments.ts';
import { newId } from './new-id.ts';
import type { SessionCommands } from './session-commands.ts';
import type { Speculator } from './speculation.ts';
import type { TurnIndex } from './turn-index.ts';
import type { TurnLimits } from './turn-limits.ts';
import type { PlaceFiles } from './store-input.ts';
import type { TurnLogReader } from './turn-log-reader.ts';
import type { OnceLog } from '../lib/once-log.ts';

/**
 * The engine runs conversations: sessions, and the turns in them. It contains no HTTP, no wire format and no URL. A
 * face such as `src/api/sessions` adds these, and uses:
 *
 * - access: `authorizeSession` and `requireTurn` (`access.ts`), before anything else;
 * - start: `TurnRequest`, then its `ClaimedTurn` (`turn-request.ts`); `checkAgent` (`agent-check.ts`) for a caller's
 *   agent;
 * - answer: the same, with an input of approvals and tool responses, which resolve pending calls of the previous turn;
 * - cancel and delete: `cancelTurns` and `deleteSession`, below;
 * - read: `logs` for the records of a turn, `turnIndex` and `catalog.turns` for the turns of a session;
 * - follow: `TurnTailPool` and `StreamSequencer` in `src/live`, which read `logs`.
 *
 * Errors are `EngineError`s with a closed set of codes (`errors.ts`), `PayloadTooLarge`, and failures of Temporal, the
 * catalog or the disk (`isUnavailable`).
 */
export interface Engine {
  config: Pick<Config, 'turnSeconds' | 'tool' | 'subAgents'>;
  catalog: KernelCatalog;
  blobs: BlobStore;
  /** The log of lost parts of stored records. */
  losses: OnceLog;
  logs: TurnLogReader;
  turnIndex: TurnIndex;
  commands: SessionCommands;
  turnLimits: TurnLimits;
  speculator: Speculator;
  agentCheck: AgentCheck;
  answerCheck: AnswerCheck;
  editCheck: EditCheck;
  placeFiles: PlaceFiles;
  budgets: { shared: SharedBudgetOf };
  keptAnswers: AnswerStore;
  /** Notifies the readers of a session, in all processes, that it has changed. Only a hint. */
  hintSession: (sessionId: string) => void;
  log: Logger;
  metrics: Pick<Metrics, 'turnsStarted'>;
}

/**
 * Cancels the running turn of a session and those in its queue or, with `turnId`, only that one. With `close` the
 * session accepts no further turns.
 * @throws EngineError
 */
export async function cancelTurns(
  { catalog, commands }: Pick<Engine, 'catalog' | 'commands'>,
  { id }: Pick<SessionRow, 'id'>,
  { close = false, turnId }: { close?: boolean; turnId?: string },
): Promise<void> {
  // Before the command is sent, so that a session workflow that is rebuilt in between is closed too.
  if (close) await catalog.sessions.close(id);
  // The command applies to turns that were requested before it, and to no later ones. The clocks of servers differ: the
  // newest turn in the index may have a later id than this server would give.
  const [now, newest] = [newId('turn'), await catalog.turns.newestId(id)];
  const upTo = newest && newest > now ? newest : now;
  await commands.cancel(id, { close, upTo, ...(turnId !== undefined && { turnId }) });
}

/**
 * Deletes a session with all that belongs to it, the sessions of its delegates included.
 * @throws EngineError `session_not_found` if it is deleted already
 */
export async function deleteSession(
  { catalog, commands, hintSession }: Pick<Engine, 'catalog' | 'commands' | 'hintSession'>,
  { id }: Pick<SessionRow, 'id'>,
): Promise<void> {
  if (!(await catalog.sessions.delete(id, new Date().toISOString()))) throw sessionNotFound(id);
  hintSession(id);
  commands.remove(id);
}
