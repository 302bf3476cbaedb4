import type { Transaction } from 'kysely';
import type { Cipher } from '../../encryption/cipher.ts';
import type { GrantRow } from './tables.ts';
import type { Tables } from '../../catalog/schema.ts';
import { changeRows, Store } from '../../catalog/store.ts';

export type NewGrant = Omit<GrantRow, 'version' | 'refreshing_until'>;

type GrantVersion = Pick<GrantRow, 'id' | 'version'>;

/** The access of subjects to MCP servers. Tokens are encrypted if there are encryption keys. */
export class McpGrants extends Store {
  async get(id: string): Promise<GrantRow | undefined> {
    const row = await this.db.selectFrom('mcp_grants').selectAll().where('id', '=', id).executeTakeFirst();
    return row && this.#open(row);
  }

  /** The id of a subject's grant for a server. */
  async find(subjectId: string, server: string): Promise<string | undefined> {
    const row = await this.db
      .selectFrom('mcp_grants')
      .select('id')
      .where('subject_id', '=', subjectId)
      .where('server', '=', server)
      .executeTakeFirst();
    return row?.id;
  }

  /** The grants of a subject after the id `after`, oldest first. */
  async list(subjectId: string, after: string, limit: number): Promise<GrantRow[]> {
    const rows = await this.db
      .selectFrom('mcp_grants')
      .selectAll()
      .where('subject_id', '=', subjectId)
      .where('id', '>', after)
      .orderBy('id')
      .limit(limit)
      .execute();
    return rows.map((row) => this.#open(row));
  }

  /** Reserves the refresh of the tokens of this version until `until`. False if another process has reserved it. */
  async reserveRefresh(grant: GrantVersion, { now, until }: { now: string; until: string }): Promise<boolean> {
    const reserved = this.#version(grant).set({ refreshing_until: until });
    return changeRows(
      reserved.where((eb) => eb.or([eb('refreshing_until', 'is', null), eb('refreshing_until', '<', now)])),
    );
  }

  /** Ends the reservation without new tokens. */
  async releaseRefresh(grant: GrantVersion): Promise<void> {
    await this.#version(grant).set({ refreshing_until: null }).execute();
  }

  /** Replaces the tokens of this version and ends the reservation. False if the grant was removed or replaced. */
  async replaceTokens(grant: GrantVersion, tokens: string): Promise<boolean> {
    const sealed = this.cipher.sealText(tokens, tokensAad(grant.id));
    return changeRows(this.#version(grant).set({ tokens: sealed, version: grant.version + 1, refreshing_until: null }));
  }

  /** Removes a grant, unless its tokens were replaced since this version. */
  async remove({ id, version }: GrantVersion): Promise<void> {
    await this.db.deleteFrom('mcp_grants').where('id', '=', id).where('version', '=', version).execute();
  }

  /** Removes a grant of the subject and returns it; undefined if there is none. */
  async take(subjectId: string, id: string): Promise<GrantRow | undefined> {
    const row = await this.db
      .deleteFrom('mcp_grants')
      .where('id', '=', id)
      .where('subject_id', '=', subjectId)
      .returningAll()
      .executeTakeFirst();
    return row && this.#open(row);
  }

  #version({ id, version }: GrantVersion) {
    return this.db.updateTable('mcp_grants').where('id', '=', id).where('version', '=', version);
  }

  #open(row: GrantRow): GrantRow {
    const data = this.cipher.openText(row.data, dataAad(row.id));
    return { ...row, data, tokens: this.cipher.openText(row.tokens, tokensAad(row.id)) };
  }
}

/** Inserts a grant in place of the subject's earlier one for the server. */
export async function insertGrant(db: Transaction<Tables>, cipher: Cipher, grant: NewGrant): Promise<void> {
  const { id, subject_id: subjectId, server, data, tokens } = grant;
  await db.deleteFrom('mcp_grants').where('subject_id', '=', subjectId).where('server', '=', server).execute();
  await db
    .insertInto('mcp_grants')
    .values({
      ...grant,
      data: cipher.sealText(data, dataAad(id)),
      tokens: cipher.sealText(tokens, tokensAad(id)),
      version: 1,
      refreshing_until: null,
    })
    .execute();
}

function dataAad(id: string): string {
  return `mcp_grants/${id}/data`;
}

function tokensAad(id: string): string {
  return `mcp_grants/${id}/tokens`;
}
