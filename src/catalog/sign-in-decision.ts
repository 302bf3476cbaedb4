import type { Transaction } from 'kysely';
import type { ActionDecision } from './action-index.ts';
import type { Tables } from './schema.ts';

/** How the subject of a sign-in has ended it, as the index of actions has it; undefined if it has not. */
export async function signInDecision(db: Transaction<Tables>, id: string): Promise<ActionDecision | undefined> {
  const row = await db
    .selectFrom('mcp_sign_ins')
    .innerJoin('turns', 'turns.id', 'turn_id')
    .innerJoin('sessions', 'sessions.id', 'turns.session_id')
    .select(['status', 'mcp_sign_ins.ended_at as at'])
    .select(['sessions.subject_id as subjectId', 'subject_type as subjectType', 'subject_slug as subjectSlug'])
    .where('mcp_sign_ins.id', '=', id)
    .executeTakeFirst();
  if (!row || row.at === null || row.status === 'replaced') return undefined;
  const { status, at, ...by } = row;
  return { by, decision: status === 'granted' ? 'allow' : 'deny', at };
}

/** Whether the turn requests another sign-in instead. */
export async function isReplaced(db: Transaction<Tables>, id: string): Promise<boolean> {
  const row = await db.selectFrom('mcp_sign_ins').select('status').where('id', '=', id).executeTakeFirst();
  return row?.status === 'replaced';
}
