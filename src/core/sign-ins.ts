import type { InputItem } from './records/input.ts';
import type { UnsequencedRecord } from './records/log.ts';

/** A sign-in that a conversation has requested. */
export interface RequestedSignIn {
  id: string;
  /** Whether another one may be requested if the user has not signed in. */
  mayRepeat: boolean;
  /** Whether it was requested in this turn or in the one before. */
  isRecent: boolean;
}

/**
 * Whether a turn with this input may request a sign-in that was requested before: it continues the conversation after
 * the sign-in. A turn with a message continues it without the server, so an agent is usable without a sign-in.
 */
export function mayRepeatSignIns(input: InputItem[]): boolean {
  return input.every(({ type }) => type !== 'user.message');
}

/**
 * The sign-ins that a conversation has requested, by server, since the servers were last connected. `records` ends with
 * the turn in progress.
 */
export function requestedSignIns(records: UnsequencedRecord[]): Map<string, RequestedSignIn> {
  const requested = new Map<string, { id: string; turn: number }>();
  let turn = 0;
  let mayRepeat = false;
  for (const record of records) {
    if (record.kind === 'turn.created') {
      turn += 1;
      mayRepeat = mayRepeatSignIns(record.input);
    } else if (record.kind === 'mcp.auth_required') {
      for (const { id, signInId } of record.servers) requested.set(id, { id: signInId, turn });
    } else if (record.kind === 'mcp.initialize') {
      for (const { id } of record.servers) requested.delete(id);
    }
  }
  const found = [...requested].map(([server, { id, turn: at }]) => {
    return [server, { id, mayRepeat: mayRepeat || at === turn, isRecent: turn - at <= 1 }] as const;
  });
  return new Map(found);
}
