import type { BudgetReport } from '../budget.ts';
import type { Subject } from '../subject.ts';
import type { TurnTotals } from '../turn-totals.ts';
import type { RecordBase } from './base.ts';
import type { ConversationRef, InputItem, UserContentPart } from './input.ts';
import type { ModelMessage } from './message.ts';
import type { PendingCall, RequiredAction } from './pending.ts';
import type { OpenThread } from './threads.ts';

export interface TurnCreated extends RecordBase {
  kind: 'turn.created';
  turnId: string;
  sessionId: string;
  previousTurnId: string | null;
  createdBy: Subject;
  input: InputItem[];
  conversation?: ConversationRef;
  /** As in the turn's start. */
  isRun?: true;
  specHash: string;
  /** The turn waits in the queue of its session, or has ended there: its position in it at its creation, from 1. */
  queued?: { position: number };
  /** When it began, if it has waited in the queue. */
  begunAt?: string;
  /** A placeholder for a damaged record: see `lostRecord`. Stored records do not have it. */
  isLost?: true;
}

/** The client is to refresh toolkits before the model of the root agent is called again, after this message. */
export interface RefreshRequired extends RecordBase {
  kind: 'toolkit.refresh_required';
  messageId: string;
  toolkits: string[];
}

/** The new contents of a toolkit of the client. */
export interface ToolkitRefreshed extends RecordBase {
  kind: 'toolkit.refreshed';
  by: Subject;
  /** The message after which it was required. */
  messageId: string;
  toolkit: string;
  systemPrompt?: string;
  /** As JSON. */
  tools: string;
  /** Equal for equal prompts and tools: long texts may be references. */
  hash: string;
}

/**
 * Why a turn is paused. While there is a reason, its time limit stops.
 * - `action`: it is idle until it gets answers.
 * - `sign_in`: the same, and it waits for sign-ins only.
 * - `delegation`: it is idle until agents in sessions of their own have returned the results of its calls.
 * - `requested`: a command holds it.
 * - `budget`: it is held because its budget was reached.
 */
export const PAUSE_REASONS = ['action', 'sign_in', 'delegation', 'requested', 'budget'] as const;

export type PauseReason = (typeof PAUSE_REASONS)[number];

/** A pause begins or ends. A turn may be paused for several reasons at once, each with records of its own. */
export interface TurnPaused extends RecordBase {
  kind: 'turn.paused' | 'turn.resumed';
  reason: PauseReason;
  /** The subject whose command caused it; absent if there was none. */
  by?: Subject;
  /** Set if the reason is the budget: its state at the pause, or after it was raised. */
  budget?: BudgetReport;
  /** Only clients that ask for all events get it: those of an agent without budgets and pauses may not support it. */
  isHidden?: true;
}

/** A message of a user for the root agent of a running turn. */
export interface UserSteered extends RecordBase {
  kind: 'user.steered';
  by: Subject;
  /** The command that brought it: see `SteerCommand`. */
  commandId: string;
  /** The session that has the files of the content. */
  sessionId: string;
  content: string | UserContentPart[];
}

/**
 * What the root agent did when its turn was cancelled: it called its model; calls ran, or other agents worked on them;
 * or neither, as while people decide.
 */
export type CancelPhase = 'model' | 'tool' | 'between';

export type CancelReason = 'client-cancelled' | 'cancelled-for-next-turn' | 'server-execution-timeout' | 'abandoned';

export type TurnOutcome =
  | {
      status: 'done';
      output: ModelMessage | null;
      requiredActions: RequiredAction[];
      /** The calls that wait behind those of the actions. */
      held?: PendingCall[];
      /** The sub-agents that wait with the root agent. */
      threads?: OpenThread[];
      /**
       * The turn has no answer, and its output is the agent's last message. `denial`: a person has denied a call, and
       * the agent's turns end then; `max_turns`: its request allows no more rounds of model calls and tools.
       */
      endedBy?: 'denial' | 'max_turns';
    }
  | { status: 'cancelled'; reason: CancelReason; phase?: CancelPhase }
  | TurnError;

/** A turn that ends with an error. */
export interface TurnError {
  status: 'error';
  message: string;
  code?: TurnErrorCode;
  /** How the provider has failed, if the code is `model_failed`. */
  modelFailure?: ModelFailed;
}

export interface ModelFailed {
  /** The class of the failure. */
  kind: string;
  /** The HTTP status that the provider has sent. */
  status?: number;
}

/**
 * Why a turn has failed. Absent: for another reason, or for an unknown one.
 * - `budget_exceeded`: its budget was reached.
 * - `iteration_limit`: its limit of model calls was reached.
 * - `answer_misfit`: no answer has fitted the agent's schema.
 * - `model_failed`: the provider has failed, permanently or for too long.
 * - `tool_failed`: a call has no result, and the agent's turns end then.
 * - `repeated_call_id`: the model gave two calls of a message the same id, and the agent's turns end then.
 * - `server_unavailable`: an MCP server that the agent requires is unavailable.
 * - `repeated_tool_name`: its client has given it two tools of one name.
 * - `action_expired`: the turn has waited for answers for as long as it may.
 */
export type TurnErrorCode =
  | 'budget_exceeded'
  | 'iteration_limit'
  | 'answer_misfit'
  | 'model_failed'
  | 'tool_failed'
  | 'repeated_call_id'
  | 'server_unavailable'
  | 'repeated_tool_name'
  | 'action_expired';

/** The outcome in one word; `action_required`: the turn is done, and calls are pending on it. */
export type OutcomeStatus = TurnOutcome['status'] | 'action_required';

export function endStatus(end: TurnOutcome): OutcomeStatus {
  return end.status === 'done' && end.requiredActions.length > 0 ? 'action_required' : end.status;
}

/** Whether the output of a turn that is done has text. */
export function hasOutput<D extends Extract<TurnOutcome, { status: 'done' }>>(
  end: D,
): end is D & { output: ModelMessage } {
  return end.output !== null && end.output.content + end.output.refusal !== '';
}

/** A limit at which a turn is forced to answer: of its model calls, or of the time for which it works. */
export type ResponseLimit = 'iterations' | 'time';

export interface TurnDone extends RecordBase, TurnTotals {
  kind: 'turn.done';
  end: TurnOutcome;
  /** Set if a limit has forced the turn to answer, whatever the result. */
  limit?: ResponseLimit;
  /** How long the turn was paused. */
  waitedMs: number;
  /** How long it has worked: without pauses, and without the time in the queue of its session. */
  workedMs: number;
}
