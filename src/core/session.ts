import type { TurnToCreate, TurnStart } from './history.ts';
import type { Waiting } from './records/pending.ts';
import type { QueuedTurn, QueuePosition } from './turn-queue.ts';

/** The input of a session workflow. */
export interface SessionStart {
  sessionId: string;
  /** The turn whose command starts this run. It usually does not exist yet. */
  begins?: string;
  /** Set when the session continues as new; a fresh run loads its state from the catalog and the logs of its turns. */
  state?: SessionTurnsState;
  /** Set together with `state`, unless the workflow does not end by itself. */
  idle?: IdleTime;
}

/** A session's workflow ends when it has been at rest, without a command, for this time. */
export interface IdleTime {
  seconds: number;
  /** When the last command was carried out, or the last turn ended: milliseconds since 1970. */
  since: number;
}

/** What a fresh run of a session's workflow begins with. */
export interface LoadedSession extends SessionTurnsState {
  /** After how long at rest the workflow ends. Absent in runs of older versions: they do not end by themselves. */
  idleSeconds?: number;
}

export interface SessionTurnsState {
  /** The newest turn. */
  tip: Tip | null;
  /** Whether the tip is still running. */
  open: boolean;
  closed: boolean;
  /** The turns that wait until the others have ended, in their order. */
  queue: QueuedTurn[];
  /** The highest id of a turn: tips need not be in the order of their ids, since some wait in the queue. */
  newest: string | null;
}

/**
 * What a request for a turn does while another turn runs: the new turn cancels that turn, waits in the queue until all
 * turns before it have ended, or is rejected; or the running turn gets the messages.
 */
export const ON_RUNNING = ['cancel', 'queue', 'steer', 'reject'] as const;

export type OnRunning = (typeof ON_RUNNING)[number];

/** The result of the command that creates a turn. */
export type TurnCreation = TurnAccepted | TurnEnqueued;

/** The turn runs. */
export type TurnAccepted = Pick<TurnStart, 'turnId' | 'previousTurnId' | 'sequence'>;

/** The turn waits in the queue. */
export interface TurnEnqueued {
  turnId: string;
  queued: QueuePosition;
}

/** A turn, with what waits for a reply on it. */
export interface Tip extends TurnAccepted, Waiting {}

/** A turn as its log has it. */
export interface SeenTurn extends Tip {
  open: boolean;
  /** It waits in the queue, or has ended there. */
  queued?: QueuePosition;
}

/**
 * A turn to start, as the API sends it: validated as far as that is possible without the session.
 *
 * A repetition must be identical, except for fields that only the turn reads. If two commands have the same update id
 * and the database of the Temporal server fails between them, the history may hold the second although the worker has
 * executed the first; a replay that takes any other path then fails for ever.
 */
export interface CreateTurnCommand extends TurnToCreate {
  /** The caller may not cancel: the command is rejected if another turn runs, which it would end. */
  sparesRunning?: true;
  /** Default: cancel. Messages that a running turn could accept were already sent to it: see `steerTurn`. */
  onRunning?: 'queue' | 'reject';
  /** The session's last turn, no turn, or the one with this id. */
  previous: { turn: 'last' } | { turn: 'none' } | { turn: 'id'; turnId: string };
}

/**
 * A command that arrives later than this after its creation is rejected: what it refers to may have been removed, see
 * `src/engine/turn-index.ts`. Half a day is far longer than any command takes, and than clocks differ.
 */
export const COMMAND_LIFETIME_MS = 12 * 3_600_000;

export interface CancelCommand {
  /** The turn to cancel, running or queued. Absent: the running turn, and all that are queued. */
  turnId?: string;
  /** The session takes no further turns. */
  close: boolean;
  /**
   * The newest turn that the command may cancel, by its id. Temporal repeats commands to a run that results from an
   * operator's reset, and another turn may run at that time.
   */
  upTo: string;
}
