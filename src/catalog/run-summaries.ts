import type { Kysely, Transaction } from 'kysely';
import type { Cipher } from '../encryption/cipher.ts';
import type { Tables } from './schema.ts';

/** What lists show of runs: JSON, as the face of runs makes it of their logs. */
export class RunSummaries {
  readonly #db: Kysely<Tables>;
  readonly #cipher: Cipher;

  constructor(db: Kysely<Tables>, cipher: Cipher) {
    this.#db = db;
    this.#cipher = cipher;
  }

  /** The summaries that there are, by the ids of the sessions; without those whose key is missing. */
  async of(sessionIds: string[]): Promise<Map<string, string>> {
    if (sessionIds.length === 0) return new Map();
    const rows = await this.#db.selectFrom('run_summaries').selectAll().where('session_id', 'in', sessionIds).execute();
    const opened = rows.map(
      ({ session_id: id, summary }) => [id, this.#cipher.openLabel(summary, aadFor(id))] as const,
    );
    return new Map(opened.flatMap(([id, summary]) => (summary === null ? [] : [[id, summary]])));
  }
}

/** Stores the summary of a run, in the transaction that archives what it is made of. */
export async function storeRunSummary(
  db: Transaction<Tables>,
  cipher: Cipher,
  { sessionId, summary: text }: { sessionId: string; summary: string },
): Promise<void> {
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
