import type { SessionRow, TurnRow } from '../../catalog/schema.ts';
import { TurnNotFound } from '../../engine/turn-log-reader.ts';
import type { ApiContext } from '../http/context.ts';
import { isId } from '../../core/ids.ts';

type Context = Pick<ApiContext, 'catalog' | 'logs'>;

/** @throws TurnNotFound if the session has no such turn */
export async function requireTurn({ catalog, logs }: Context, session: SessionRow, turnId: string): Promise<void> {
  if (!isId(turnId)) throw new TurnNotFound(turnId);
  const row = await catalog.turns.get(turnId);
  if (isTurnOf(session, row)) return;
  // Of what is only a request, or not in the index at all, Temporal knows whether it has become a turn.
  const isAsked = !row || row.sequence === null;
  if (!isAsked || (await logs.start(turnId)).sessionId !== session.id) throw new TurnNotFound(turnId);
}

/** Whether the index has it as a turn of the session. */
export function isTurnOf(session: Pick<SessionRow, 'id'>, row: TurnRow | undefined): boolean {
  return row !== undefined && row.session_id === session.id && row.sequence !== null;
}

/** Whether the session has the turn. */
export async function hasTurn(context: Context, session: SessionRow, turnId: string): Promise<boolean> {
  try {
    await requireTurn(context, session, turnId);
    return true;
  } catch (error) {
    if (error instanceof TurnNotFound) return false;
    throw error;
  }
}
