import type { Kysely, Transaction } from 'kysely';
import type { Cipher } from '../encryption/cipher.ts';
import type { Tables } from './schema.ts';

/**
 * What the MCP servers of a run are given by its client: credentials, and parts of the context. They are encrypted if there
 * are encryption keys, and exist from the request for the run's turn until its log is archived, or the request withdrawn.
 */
export class RunSecrets {
  readonly #db: Kysely<Tables>;
  readonly #cipher: Cipher;

  constructor(db: Kysely<Tables>, cipher: Cipher) {
    this.#db = db;
    this.#cipher = cipher;
  }

  /** The secrets of a session's run; undefined if it has none, or has ended. */
  async get(sessionId: string): Promise<string | undefined> {
    const row = await this.#db
      .selectFrom('run_secrets')
      .select('secrets')
      .where('session_id', '=', sessionId)
      .executeTakeFirst();
    return row && this.#cipher.openText(row.secrets, aadFor(sessionId));
  }
}

/** Stores the secrets of a run, unless it has ended. The caller's transaction has locked its session. */
export async function storeRunSecrets(
  db: Transaction<Tables>,
  cipher: Cipher,
  { sessionId, turnId, secrets }: { sessionId: string; turnId: string; secrets: string },
): Promise<void> {
  const turn = await db.selectFrom('turns').select('archived').where('id', '=', turnId).executeTakeFirst();
  if (turn?.archived !== 0) return;
  await db
    .insertInto('run_secrets')
    .values({ session_id: sessionId, secrets: cipher.sealText(secrets, aadFor(sessionId)) })
    .onConflict((conflict) => conflict.column('session_id').doNothing())
    .execute();
}

export async function removeRunSecrets(db: Transaction<Tables>, sessionId: string): Promise<void> {
  await db.deleteFrom('run_secrets').where('session_id', '=', sessionId).execute();
}

function aadFor(sessionId: string): string {
  return `run_secrets/${sessionId}`;
}
