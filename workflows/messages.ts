import { defineSignal, defineUpdate } from '@temporalio/workflow';
import type { TurnStart } from '../src/core/history.ts';
import type { CancelReason, PendingCall } from '../src/core/records.ts';

/**
 * A turn to start, as the API sends it: validated as far as that is possible without the session.
 *
 * Sent again it must be the same, but for what only the turn itself makes use of. If two have the same update id and the
 * server's database goes away in between, its history may have the second while the worker has carried out the first; a
 * replay that does anything else then fails for ever.
 */
export interface CreateTurnCommand extends Pick<
  TurnStart,
  'turnId' | 'createdAt' | 'createdBy' | 'owner' | 'input' | 'title' | 'specHash' | 'hasServers' | 'limits'
> {
  /** Only in commands of older servers: it may have been sent before, and another turn may have followed since. */
  isRepeated?: boolean;
  /** The caller may not cancel: the command is refused if another turn runs, which it would end. */
  sparesRunning?: true;
  /** The session's last turn, no turn, or the one with this id. */
  previous: { turn: 'last' } | { turn: 'none' } | { turn: 'id'; turnId: string };
}

export interface TurnAccepted {
  turnId: string;
  previousTurnId: string | null;
  sequence: number;
}

export interface TurnEnding {
  turnId: string;
  pending: PendingCall[];
}

/**
 * A command that has been on its way for longer than this is not carried out any more: what it refers to may be gone by
 * then, see `src/engine/turn-index.ts`. Half a day is far more than any command takes, or than clocks differ.
 */
export const COMMAND_LIFETIME_MS = 12 * 3_600_000;

/** To a session. Fails with a `Rejection` as its failure's type. */
export const createTurn = defineUpdate<TurnAccepted, [CreateTurnCommand]>('createTurn');

export interface CancelCommand {
  /** The session takes no further turns. */
  close: boolean;
  /**
   * The turn meant is this one or an older one, by its id. Temporal gives commands once more to a run that came of an
   * operator's reset, and another turn may run by then. Absent in commands of older servers.
   */
  upTo?: string;
}

/** To a session: cancels the running turn, if any. */
export const cancelSession = defineUpdate<void, [CancelCommand]>('cancelSession');

/** From a turn to its session: the last thing that it does before it closes. */
export const turnEnding = defineSignal<[TurnEnding]>('turnEnding');

/** From a session to its running turn. */
export const cancelTurn = defineSignal<[CancelReason]>('cancelTurn');
