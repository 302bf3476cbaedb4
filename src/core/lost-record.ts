import { eventId, lostMessageId } from './ids.ts';
import type { InputItem } from './records/input.ts';
import type { ModelMessage } from './records/message.ts';
import { ROOT_THREAD } from './records/threads.ts';
import type { TurnCreated, TurnDone } from './records/turn.ts';
import type { Subject } from './subject.ts';
import { NO_TOTALS } from './turn-totals.ts';

/** The placeholder for the content of a damaged record. */
export const LOST_RECORD = '[A record is lost: it is damaged in the database of the server.]';

/** The position of a record, with the fields of its turn from the index. */
export interface DamagedRecord extends Pick<TurnCreated, 'turnId' | 'sessionId' | 'previousTurnId' | 'specHash'> {
  ordinal: number;
  /** Whether the log ends with the record. */
  isLast: boolean;
  createdAt: string;
  /** The owner of the session, in place of the turn's creator. */
  owner: Subject;
  isRun: boolean;
}

/**
 * The placeholder for a damaged record, so that the other records of its log can be read: the beginning or the end of
 * the turn, or else a message of the root agent, which readers and models see.
 */
export function lostRecord(damaged: DamagedRecord): TurnCreated | ModelMessage | TurnDone {
  const { turnId, ordinal, isLast, sessionId, previousTurnId, createdAt: at, owner, specHash, isRun } = damaged;
  const base = { id: eventId(turnId, ordinal), at };
  const isLost = true;
  if (ordinal === 1) {
    const input: InputItem[] = [{ type: 'user.message', content: LOST_RECORD }];
    const turn = { turnId, sessionId, previousTurnId, createdBy: owner, input, specHash };
    return { kind: 'turn.created', ...base, ...turn, isLost, ...(isRun && { isRun }) };
  }
  if (isLast) {
    const end = { status: 'error' as const, message: LOST_RECORD };
    return { kind: 'turn.done', ...base, ...NO_TOTALS, end, waitedMs: 0, workedMs: 0 };
  }
  return {
    kind: 'model.message',
    ...base,
    id: lostMessageId(turnId, ordinal),
    threadId: ROOT_THREAD,
    content: LOST_RECORD,
    refusal: '',
    reasoning: '',
    toolCalls: [],
    finishReason: 'stop',
    isLost,
  };
}
