import type { TurnStart } from './history.ts';
import type { Waiting } from './records.ts';

/** The input of a session workflow. */
export interface SessionStart {
  sessionId: string;
  /** The turn whose command starts this run. It usually does not exist yet. */
  begins?: string;
  /** Set when the session continues as new; a fresh run loads its state from the catalog and the logs of its turns. */
  state?: SessionState;
}

export interface SessionState {
  /** The newest turn. */
  tip: Tip | null;
  /** Whether the tip is still running. */
  open: boolean;
  closed: boolean;
}

/**
 * What a new turn does while another one runs: it cancels that turn, or the command is rejected.
 */
export const ON_RUNNING = ['cancel', 'reject'] as const;

export type OnRunning = (typeof ON_RUNNING)[number];

/** The result of the command that creates a turn. */
export interface TurnAccepted {
  turnId: string;
  previousTurnId: string | null;
  sequence: number;
}

/** A turn, with what waits for a reply on it. */
export interface Tip extends TurnAccepted, Waiting {}

/**
 * A turn to start, as the API sends it: validated as far as that is possible without the session.
 *
 * A repetition must be identical, except for fields that only the turn reads. If two commands have the same update id
 * and the database of the Temporal server fails between them, the history may hold the second although the worker has
 * executed the first; a replay that takes any other path then fails for ever.
 */
export interface CreateTurnCommand extends Pick<
  TurnStart,
  | 'turnId'
  | 'createdAt'
  | 'createdBy'
  | 'owner'
  | 'input'
  | 'title'
  | 'specHash'
  | 'agents'
  | 'hasServers'
  | 'pause'
  | 'limits'
> {
  /** The caller may not cancel: the command is rejected if another turn runs, which it would end. */
  sparesRunning?: true;
  /** Default: cancel. */
  onRunning?: Exclude<OnRunning, 'cancel'>;
  /** The session's last turn, no turn, or the one with this id. */
  previous: { turn: 'last' } | { turn: 'none' } | { turn: 'id'; turnId: string };
}

/**
 * A command that arrives later than this after its creation is rejected: what it refers to may have been removed, see
 * `src/engine/turn-index.ts`. Half a day is far longer than any command takes, and than clocks differ.
 */
export const COMMAND_LIFETIME_MS = 12 * 3_600_000;

export interface CancelCommand {
  /** The session takes no further turns. */
  close: boolean;
  /**
   * The newest turn that the command may cancel, by its id. Temporal repeats commands to a run that results from an
   * operator's reset, and another turn may run at that time.
   */
  upTo: string;
}
