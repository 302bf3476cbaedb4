import type { SeenTurn } from '../core/session.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { LogEntry, Waiting } from '../core/records.ts';
import { TurnNotFound, type TurnLogReader } from './turn-log-reader.ts';

export interface TurnStatus extends SeenTurn {
  sessionId: string;
}

/** Reads the status of a turn from the archive, or from its history if it is not archived. */
export async function turnStatus(
  turnId: string,
  { catalog, logs }: { catalog: Catalog; logs: TurnLogReader },
): Promise<TurnStatus | undefined> {
  const row = await catalog.turns.get(turnId);
  if (row?.archived && row.queue_number !== null && row.sequence === null) {
    const queued = { number: row.queue_number };
    return { ...NOT_BEGUN, turnId, sessionId: row.session_id, open: false, queued };
  }
  if (row?.archived && row.sequence !== null) {
    const [last] = await catalog.archive.read(turnId, row.archived_through, 1);
    const { previous_turn_id: previousTurnId, session_id: sessionId, sequence } = row;
    return { turnId, sessionId, previousTurnId, sequence, open: false, ...waitingAt(last) };
  }
  try {
    const { sessionId, previousTurnId, sequence, queued } = await logs.start(turnId);
    const close = await logs.close(turnId);
    const result = close?.how === 'completed' ? close.result : undefined;
    const { pending, threads }: Waiting = result?.status === 'done' ? result : { pending: [] };
    const open = close === undefined;
    const waiting = { pending, ...(threads && { threads }) };
    return { turnId, sessionId, previousTurnId, sequence, open, ...(queued && { queued }), ...waiting };
  } catch (error) {
    if (error instanceof TurnNotFound) return undefined;
    throw error;
  }
}

const NOT_BEGUN = { previousTurnId: null, sequence: 0, pending: [] };

function waitingAt(last: LogEntry | undefined): Waiting {
  if (last?.record.kind !== 'turn.done' || last.record.end.status !== 'done') return { pending: [] };
  const { requiredActions, held = [], threads } = last.record.end;
  return { pending: [...requiredActions.flatMap(({ calls }) => calls), ...held], ...(threads && { threads }) };
}
