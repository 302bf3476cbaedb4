import { defineSignal, defineUpdate } from '@temporalio/workflow';
import type { CancelReason } from '../src/core/records.ts';
import type { CancelCommand, CreateTurnCommand, TurnAccepted, TurnEnding } from '../src/core/session.ts';

/** To a session: starts a turn. Fails with a `Rejection` as the type of the failure. */
export const createTurn = defineUpdate<TurnAccepted, [CreateTurnCommand]>('createTurn');

/** To a session: cancels the running turn, if any. */
export const cancelSession = defineUpdate<void, [CancelCommand]>('cancelSession');

/** From a turn to its session, as its last command before it closes. */
export const turnEnding = defineSignal<[TurnEnding]>('turnEnding');

/** From a session to its running turn: cancels it. */
export const cancelTurn = defineSignal<[CancelReason]>('cancelTurn');
