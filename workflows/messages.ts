import { defineSignal, defineUpdate } from '@temporalio/workflow';
import type { CancelReason } from '../src/core/records.ts';
import type { CancelCommand, CreateTurnCommand, TurnAccepted } from '../src/core/session.ts';

/** To a session: starts a turn. Fails with a `Rejection` as the type of the failure. */
export const createTurn = defineUpdate<TurnAccepted, [CreateTurnCommand]>('createTurn');

/** To a session: cancels the running turn, if any. */
export const cancelSession = defineUpdate<void, [CancelCommand]>('cancelSession');

/** To a turn: cancels it. From its session or, at its deadline, from the worker that runs its activity. */
export const cancelTurn = defineSignal<[CancelReason]>('cancelTurn');
