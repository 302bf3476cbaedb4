import type { Transaction } from 'kysely';
import type { Cipher } from '../../encryption/cipher.ts';
import type { EntriesReading, LogReader } from '../../catalog/log-reader.ts';
import type { Tables, TurnRow } from '../../catalog/schema.ts';
import { Store } from '../../catalog/store.ts';

declare module '../../catalog/schema.ts' {
  interface Tables {
    /** The Runs API runs in the form of lists, up to the archived part of their logs. */
    run_summaries: {
      session_id: string;
      /** JSON, encrypted: a `RunSummary` for the owner. */
      summary: string;
    };
  }
}

declare module '../../catalog/log-reader.ts' {
  interface EntriesReading {
    /** JSON, as in `RunSummaries`. */
    runSummary?: string | undefined;
  }
  interface SessionReading {
    runSummary?: string | undefined;
  }
}

/** A Runs API run, up to the part of its log that was read. */
export type RunReading = Required<Pick<EntriesReading, 'leaves' | 'runSummary'>>;

/** Derives the states of runs from their logs; implemented by the Runs API. */
export interface RunStates {
  /** A run after the entry with this ordinal; undefined for another turn, and for a log that cannot be read. */
  after: (turn: Pick<TurnRow, 'id' | 'session_id'>, ordinal: number) => Promise<RunReading | undefined>;
}

/** The summaries of runs in lists: JSON that the Runs API derives from their logs. */
export class RunSummaries extends Store {
  /** The existing summaries, by the ids of the sessions; without those whose encryption key is missing. */
  async of(sessionIds: string[]): Promise<Map<string, string>> {
    if (sessionIds.length === 0) return new Map();
    const rows = await this.db.selectFrom('run_summaries').selectAll().where('session_id', 'in', sessionIds).execute();
    const opened = rows.map(({ session_id: id, summary }) => [id, this.cipher.openLabel(summary, aadFor(id))] as const);
    return new Map(opened.flatMap(([id, summary]) => (summary === null ? [] : [[id, summary]])));
  }
}

export function runSummariesReader(cipher: Cipher): LogReader {
  return {
    entriesAdded: (db, turn, { runSummary }) => storeRunSummary(db, cipher, turn.session_id, runSummary),
    sessionDerived: (db, sessionId, { runSummary }) => storeRunSummary(db, cipher, sessionId, runSummary),
  };
}

async function storeRunSummary(
  db: Transaction<Tables>,
  cipher: Cipher,
  sessionId: string,
  text: string | undefined,
): Promise<void> {
  if (text === undefined) return;
  const summary = cipher.sealText(text, aadFor(sessionId));
  await db
    .insertInto('run_summaries')
    .values({ session_id: sessionId, summary })
    .onConflict((conflict) => conflict.column('session_id').doUpdateSet({ summary }))
    .execute();
}

function aadFor(sessionId: string): string {
  return `session/${sessionId}/run-summary`;
}
