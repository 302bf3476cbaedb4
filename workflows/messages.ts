import { defineSignal, defineUpdate } from '@temporalio/workflow';
import type { CancelReason } from '../src/core/records/turn.ts';
import { CANCEL_TURN, TURN_COMMAND } from '../src/core/temporal-names.ts';
import type { TurnCommand } from '../src/core/turn-command.ts';
import type { CancelCommand, CreateTurnCommand, TurnCreation } from '../src/core/session.ts';
import type { BeginTurn } from '../src/core/turn-queue.ts';

/** To a session: starts a turn, or puts it into the queue. Fails with a `Rejection` as the type of the failure. */
export const createTurn = defineUpdate<TurnCreation, [CreateTurnCommand]>('createTurn');

/** To a session: cancels turns. */
export const cancelSession = defineUpdate<void, [CancelCommand]>('cancelSession');

/** To a turn: cancels it. From its session or, at its deadline, from the worker that runs its activity. */
export const cancelTurn = defineSignal<[CancelReason]>(CANCEL_TURN);

/** To a turn that waits in the queue of its session: it begins. */
export const beginTurn = defineSignal<[BeginTurn]>('beginTurn');

/** To a turn: a command of the API, which the turn's log records if it is accepted. */
export const commandTurn = defineSignal<[TurnCommand]>(TURN_COMMAND);
