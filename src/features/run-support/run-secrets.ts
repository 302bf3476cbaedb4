import type { Transaction } from 'kysely';
import type { Cipher } from '../../encryption/cipher.ts';
import type { LogReader } from '../../catalog/log-reader.ts';
import type { Tables } from '../../catalog/schema.ts';
import { Store } from '../../catalog/store.ts';

declare module '../../catalog/schema.ts' {
  interface Tables {
    /** The secrets of Runs API runs for their MCP servers, until the runs end: see `RunSecrets`. */
    run_secrets: {
      session_id: string;
      /** JSON, encrypted: a `ServerSecrets`. */
      secrets: string;
    };
  }
}

/**
 * The secrets of a Runs API run for its MCP servers: credentials and parts of the context, from the client. Encrypted
 * if there are keys, and kept from the request for the run's turn until its log is archived or the request withdrawn.
 */
export class RunSecrets extends Store {
  /** The secrets of a session's run; undefined if it has none, or has ended. */
  async get(sessionId: string): Promise<string | undefined> {
    const row = await this.db
      .selectFrom('run_secrets')
      .select('secrets')
      .where('session_id', '=', sessionId)
      .executeTakeFirst();
    return row && this.cipher.openText(row.secrets, aadFor(sessionId));
  }
}

export function runSecretsReader(cipher: Cipher): LogReader {
  return {
    turnRequested: async (db, { id: turnId, session_id: sessionId }, secrets) => {
      if (secrets !== undefined) await storeRunSecrets(db, cipher, { sessionId, turnId, secrets });
    },
    turnEnded: async (db, { sessionId, session }) => {
      if (session.type === 'run') await removeRunSecrets(db, sessionId);
    },
    turnRemoved: removeRunSecrets,
    sessionEnded: async (db, sessionId, { isDeleted }) => {
      if (isDeleted) await removeRunSecrets(db, sessionId);
    },
  };
}

/** Stores the secrets of a run, unless it has ended. The caller's transaction has locked its session. */
async function storeRunSecrets(
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

async function removeRunSecrets(db: Transaction<Tables>, sessionId: string): Promise<void> {
  await db.deleteFrom('run_secrets').where('session_id', '=', sessionId).execute();
}

function aadFor(sessionId: string): string {
  return `run_secrets/${sessionId}`;
}
