import type { Tip } from '../workflows/session.ts';
import type { LogEntry } from '../src/log/records.ts';
import { TurnNotFound } from '../src/logs/turn-logs.ts';
import type { Dependencies } from './dependencies.ts';
import { unlessHopeless } from './unless-hopeless.ts';

export interface InspectedTurn extends Tip {
  sessionId: string;
  open: boolean;
}

/**
 * How a turn of a session stands; undefined if the session has no such turn. The calls that wait on it are answered
 * once, on whichever branch: once a turn has followed it, nothing waits there any more. Otherwise a second branch would
 * run again what must run at most once.
 */
export function createInspectTurn(dependencies: Dependencies) {
  const { catalog, turnIndex } = dependencies;
  return function inspectTurn(input: { sessionId: string; turnId: string }): Promise<InspectedTurn | undefined> {
    return unlessHopeless(async () => {
      const turn = await inspect(input.turnId, dependencies);
      if (turn?.sessionId !== input.sessionId) return undefined;
      if (turn.pending.length === 0) return turn;
      // The turn that has answered may have been started a moment ago, and not be in the index yet.
      await turnIndex.settleRequests(turn.sessionId);
      return (await catalog.turns.isFollowed(turn.turnId)) ? { ...turn, pending: [] } : turn;
    });
  };
}

/** Reads how a turn stands, from the archive if it is there, else from its history. */
export async function inspect(
  turnId: string,
  { catalog, logs }: Pick<Dependencies, 'catalog' | 'logs'>,
): Promise<InspectedTurn | undefined> {
  const row = await catalog.turns.get(turnId);
  if (row?.archived && row.sequence !== null) {
    const [last] = await catalog.archive.read(turnId, row.archived_through, 1);
    const { previous_turn_id: previousTurnId, session_id: sessionId, sequence } = row;
    return { turnId, sessionId, previousTurnId, sequence, open: false, pending: pendingAt(last) };
  }
  try {
    const { sessionId, previousTurnId, sequence } = await logs.start(turnId);
    const close = await logs.close(turnId);
    const pending = close?.how === 'completed' && close.result.status === 'done' ? close.result.pending : [];
    return { turnId, sessionId, previousTurnId, sequence, open: close === undefined, pending };
  } catch (error) {
    if (error instanceof TurnNotFound) return undefined;
    throw error;
  }
}

function pendingAt(last: LogEntry | undefined): Tip['pending'] {
  if (last?.record.kind !== 'turn.done' || last.record.end.status !== 'done') return [];
  return last.record.end.requiredActions.flatMap(({ calls }) => calls);
}
