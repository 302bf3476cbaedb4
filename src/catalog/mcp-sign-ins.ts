import type { Kysely, Transaction } from 'kysely';
import type { Cipher } from '../encryption/cipher.ts';
import { insertGrant, type NewGrant } from './mcp-grants.ts';
import type { NewSignInRow, SignInRow, SignInStatus, Tables } from './schema.ts';

/** The sign-ins to MCP servers that turns have requested. Their data is encrypted if there are encryption keys. */
export class McpSignIns {
  readonly #db: Kysely<Tables>;
  readonly #cipher: Cipher;

  constructor(db: Kysely<Tables>, cipher: Cipher) {
    this.#db = db;
    this.#cipher = cipher;
  }

  async insert(row: NewSignInRow): Promise<void> {
    await this.#db
      .insertInto('mcp_sign_ins')
      .values({ ...row, data: this.#cipher.sealText(row.data, aad(row.id)) })
      .execute();
  }

  async get(id: string): Promise<SignInRow | undefined> {
    const row = await this.#db.selectFrom('mcp_sign_ins').selectAll().where('id', '=', id).executeTakeFirst();
    return row && this.#open(row);
  }

  /** A sign-in that a turn has requested to a server, and that does not expire before `notBefore`. */
  async requested(
    { turnId, server }: { turnId: string; server: string },
    notBefore: string,
  ): Promise<SignInRow | undefined> {
    const row = await this.#db
      .selectFrom('mcp_sign_ins')
      .selectAll()
      .where('turn_id', '=', turnId)
      .where('server', '=', server)
      .where('status', '=', 'requested')
      .where('expires_at', '>', notBefore)
      .executeTakeFirst();
    return row && this.#open(row);
  }

  /**
   * Stores the data with which the user is sent to the authorization server. A sign-in whose code was being exchanged
   * begins again. Returns false if the sign-in has ended, or has had `maxRedirects`.
   */
  async redirect(id: string, data: string, maxRedirects: number): Promise<boolean> {
    const { numUpdatedRows } = await this.#db
      .updateTable('mcp_sign_ins')
      .set((eb) => ({
        data: this.#cipher.sealText(data, aad(id)),
        status: 'requested',
        redirects: eb('redirects', '+', 1),
      }))
      .where('id', '=', id)
      .where('status', 'in', ['requested', 'exchanging'])
      .where('redirects', '<', maxRedirects)
      .executeTakeFirst();
    return numUpdatedRows > 0n;
  }

  /** Changes the status. Returns false if it is not `from`: only one of several requests changes it. */
  async change(id: string, from: SignInStatus, to: SignInStatus): Promise<boolean> {
    return changeStatus(this.#db, id, from, to);
  }

  /** Ends a sign-in with a grant, which replaces the subject's earlier one. Returns false if it is not `exchanging`. */
  async grant(id: string, grant: NewGrant): Promise<boolean> {
    return this.#db.transaction().execute(async (transaction) => {
      if (!(await changeStatus(transaction, id, 'exchanging', 'granted'))) return false;
      await insertGrant(transaction, this.#cipher, grant);
      return true;
    });
  }

  /** Deletes the sign-ins that were requested before `time`. */
  async forget(time: string): Promise<void> {
    await this.#db.deleteFrom('mcp_sign_ins').where('created_at', '<', time).execute();
  }

  #open(row: SignInRow): SignInRow {
    return { ...row, data: this.#cipher.openText(row.data, aad(row.id)) };
  }
}

async function changeStatus(
  db: Kysely<Tables> | Transaction<Tables>,
  id: string,
  from: SignInStatus,
  to: SignInStatus,
): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('mcp_sign_ins')
    .set({ status: to })
    .where('id', '=', id)
    .where('status', '=', from)
    .executeTakeFirst();
  return numUpdatedRows > 0n;
}

function aad(id: string): string {
  return `mcp_sign_ins/${id}`;
}
