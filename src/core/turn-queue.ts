import type { TurnBegun, TurnResult, TurnStart } from './history.ts';
import type { Refusal } from './input-rules.ts';
import type { InputItem } from './records/input.ts';
import type { CancelReason } from './records/turn.ts';
import type { CreateTurnCommand, SessionTurnsState } from './session.ts';
import { isAnyOpen } from './turn-result.ts';

/** A turn's position in the queue of its session. */
export interface QueuePosition {
  /** Rises from turn to turn; the queue is in this order. */
  number: number;
  /** The turn begins a new root, without history. */
  isRoot?: true;
}

export interface QueuedTurn extends QueuePosition {
  turnId: string;
}

/** What a turn that has waited in the queue receives when it begins. */
export type BeginTurn = Pick<TurnStart, 'sequence' | 'previousTurnId'>;

/** The longest queue: a person cannot oversee more turns, and each one has a workflow of its own. */
export const MAX_QUEUED = 20;

/**
 * Whether a command is for the queue, now that its session is in this state. Only messages are: answers to tool calls,
 * and an empty input that continues a turn, are for what the session waits for now, and bypass the queue.
 */
export function isForQueue({ onRunning, input }: CreateTurnCommand, { open, queue }: SessionTurnsState): boolean {
  return onRunning === 'queue' && hasMessages(input) && (open || queue.length > 0);
}

function hasMessages(input: InputItem[]): boolean {
  return input.some(({ type }) => type === 'user.message');
}

/** Why a turn cannot be queued, if it cannot: a turn in the queue follows the last one, or none. */
export function refuseQueued(
  { previous }: Pick<CreateTurnCommand, 'previous'>,
  { tip, queue }: Pick<SessionTurnsState, 'tip' | 'queue'>,
): Refusal | undefined {
  if (queue.length >= MAX_QUEUED) {
    return { code: 'queue_full', message: `${MAX_QUEUED} turns wait in the session, and no more may: try again later` };
  }
  if (previous.turn !== 'id') return undefined;
  const isLast = [tip, ...queue].some((turn) => turn?.turnId === previous.turnId);
  if (isLast) return undefined;
  return {
    code: 'turn_running',
    message: 'another turn is running, and a fork cannot be queued: send it again when that turn has ended',
  };
}

/** The turn that begins next, if one may: none is running, and nothing waits for an answer or a sign-in. */
export function nextInQueue({ tip, open, queue }: SessionTurnsState): QueuedTurn | undefined {
  const isBlocked = open || (tip !== null && isAnyOpen(tip));
  return isBlocked ? undefined : queue[0];
}

/** Adds a turn that exists already to the queue, at its position. */
export function insertQueued(queue: QueuedTurn[], turn: QueuedTurn): QueuedTurn[] {
  if (queue.some(({ turnId }) => turnId === turn.turnId)) return queue;
  return [...queue, turn].toSorted((a, b) => a.number - b.number);
}

/** What a turn has received while it waited in the queue. */
interface Awaited extends Omit<TurnBegun, 'cancelled'> {
  begin: BeginTurn | undefined;
  cancelled: CancelReason | undefined;
}

/**
 * What follows the run of a turn that has waited in the queue: its next run, or its end. Once the turn has begun, its
 * session counts it, so it ends in its next run, also if it was cancelled at the same moment.
 */
export function afterQueue(
  waiting: TurnStart,
  { begin, cancelled, ...begun }: Awaited,
): { next: TurnStart } | { end: TurnResult } {
  if (!begin) return { end: { status: 'cancelled', reason: cancelled ?? 'abandoned' } };
  const { queued: _, ...start } = waiting;
  return { next: { ...start, ...begin, begun: { ...begun, ...(cancelled && { cancelled }) } } };
}
