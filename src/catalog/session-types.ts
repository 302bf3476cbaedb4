import { sql, type RawBuilder, type SqlBool } from 'kysely';
import type { SessionRow } from './schema.ts';

/** The sessions that are shown as such: the others are those of runs. */
export const SHOWN_SESSIONS = ['session', 'session/draft'] as const;

const OF_RUNS: readonly Exclude<SessionRow['type'], (typeof SHOWN_SESSIONS)[number]>[] = ['run', 'run/delegate'];

/**
 * Whether a session is shown, as a condition on the alias `s`. It has literals, since SQLite uses a partial index only
 * for its own condition; and it is negative, since SQLite would otherwise find the types in a wider index, unordered.
 */
export const isShownSession: RawBuilder<SqlBool> = sql`s.type not in (${sql.join(OF_RUNS.map((type) => sql.lit(type)))})`;

/** Whether a session is that of a run, or of an agent to which a run has delegated a call. */
export function isOfRun({ type }: Pick<SessionRow, 'type'>): boolean {
  return OF_RUNS.some((one) => one === type);
}
