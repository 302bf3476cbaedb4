import { defineSignal, defineUpdate } from '@temporalio/workflow';
import type { CancelReason } from '../src/core/records.ts';
import type { CancelCommand, CreateTurnCommand, TurnAccepted, TurnEnding } from '../src/core/session.ts';

/** To a session. Fails with a `Rejection` as the type of its failure. */
export const createTurn = defineUpdate<TurnAccepted, [CreateTurnCommand]>('createTurn');

/** To a session: cancels the running turn, if any. */
export const cancelSession = defineUpdate<void, [CancelCommand]>('cancelSession');

/** From a turn to its session: the last thing that it does before it closes. */
export const turnEnding = defineSignal<[TurnEnding]>('turnEnding');

/** From a session to its running turn. */
export const cancelTurn = defineSignal<[CancelReason]>('cancelTurn');
