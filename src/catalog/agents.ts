import type { Transaction } from 'kysely';
import { LRUCache } from 'lru-cache';
import { hashOf } from '../lib/hash.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import type { AgentRow, AgentVersionRow, Tables } from './schema.ts';
import { changeRows, Store } from './store.ts';

export interface AgentWithSpec extends AgentRow {
  spec: AgentSpec;
}

const MAX_CACHED_CHARACTERS = 64 * 1024 * 1024;

/** Agents, their versions and their specs. */
export class Agents extends Store {
  /** Specs are immutable, so entries need no invalidation. */
  readonly #specs = new LRUCache<string, AgentSpec>({ maxSize: MAX_CACHED_CHARACTERS });

  async get(name: string): Promise<AgentWithSpec | undefined> {
    const row = await this.#row(name);
    return row && { ...row, spec: await this.spec(row.spec_hash) };
  }

  /** Returns those of the names under which agents are registered. */
  async registered(names: readonly string[]): Promise<string[]> {
    if (names.length === 0) return [];
    const rows = await this.db.selectFrom('agents').select('name').where('name', 'in', names).execute();
    return rows.map(({ name }) => name);
  }

  #row(name: string): Promise<AgentRow | undefined> {
    return this.db.selectFrom('agents').selectAll().where('name', '=', name).executeTakeFirst();
  }

  /** Stores a new version of an agent, unless its newest version has the same spec. */
  async put(name: string, spec: AgentSpec, now: string): Promise<AgentWithSpec> {
    // Includes the names that the spec has under other encryption keys.
    const same = new Set(this.cipher.namesOf(hashOf(spec), 'spec'));
    const newest = await this.#row(name);
    if (newest && same.has(newest.spec_hash)) return { ...newest, spec };
    const specHash = await this.putSpec(spec, now);
    const row = await this.db.transaction().execute(async (db) => {
      // Inserted or found, the row stays locked until the commit: a concurrent `put` waits, then reads this version.
      const locked = await db
        .insertInto('agents')
        .values({ name, version: 0, spec_hash: specHash, created_at: now, updated_at: now })
        .onConflict((conflict) => conflict.column('name').doUpdateSet((eb) => ({ name: eb.ref('excluded.name') })))
        .returningAll()
        .executeTakeFirstOrThrow();
      if (locked.version > 0 && same.has(locked.spec_hash)) return locked;
      return addVersion(db, locked, specHash, now);
    });
    return { ...row, spec };
  }

  /** Lists agents by name, starting after `after`. */
  async list(order: 'asc' | 'desc', after: string | undefined, limit: number): Promise<AgentRow[]> {
    return this.db
      .selectFrom('agents')
      .selectAll()
      .$if(after !== undefined, (query) => query.where('name', order === 'asc' ? '>' : '<', after ?? ''))
      .orderBy('name', order)
      .limit(limit)
      .execute();
  }

  /**
   * Deletes an agent but keeps its versions, since sessions may be pinned to them. False if there is no such agent, or
   * `version` is set and not the newest.
   */
  async delete(name: string, version?: number): Promise<boolean> {
    const deleted = this.db
      .deleteFrom('agents')
      .where('name', '=', name)
      .$if(version !== undefined, (query) => query.where('version', '=', version ?? 0));
    return changeRows(deleted);
  }

  /** One version of an agent; also of a deleted one. */
  async version(name: string, version: number): Promise<AgentVersionRow | undefined> {
    return this.db
      .selectFrom('agent_versions')
      .selectAll()
      .where('agent_name', '=', name)
      .where('version', '=', version)
      .executeTakeFirst();
  }

  /** Lists the versions of an agent, starting after `after`; also those of a deleted one. */
  async versions(
    name: string,
    order: 'asc' | 'desc',
    after: number | undefined,
    limit: number,
  ): Promise<AgentVersionRow[]> {
    return this.db
      .selectFrom('agent_versions')
      .selectAll()
      .where('agent_name', '=', name)
      .$if(after !== undefined, (query) => query.where('version', order === 'asc' ? '>' : '<', after ?? 0))
      .orderBy('version', order)
      .limit(limit)
      .execute();
  }

  /**
   * Stores a spec under the name of its hash (see `Cipher.nameOf`). Until a session or an agent refers to it, it is
   * kept for as long as `forgetSpecs` waits.
   */
  async putSpec(spec: AgentSpec, now: string): Promise<string> {
    const hash = this.cipher.nameOf(hashOf(spec), 'spec');
    const stored = this.cipher.sealText(JSON.stringify(spec), `spec/${hash}`);
    await this.db.transaction().execute(async (db) => {
      await db
        .insertInto('specs')
        // The caller may fail before it refers to the spec: `forgetSpecs` checks for references when the spec is due.
        .values({ hash, spec: stored, retention_days: spec.config?.retention_days ?? null, unused_since: now })
        .onConflict((conflict) =>
          conflict.column('hash').doUpdateSet({ unused_since: now }).where('specs.unused_since', 'is not', null),
        )
        .execute();
      await referToDelegates(db, hash, spec);
    });
    return hash;
  }

  /**
   * Deletes specs that were stored, or that a session or a spec stopped using, before this time, unless a session, an
   * agent, a version or another spec refers to them.
   */
  async forgetSpecs(before: string, now: string): Promise<void> {
    await this.db.transaction().execute(async (db) => {
      await db
        .updateTable('specs')
        .set({ unused_since: null })
        .where('unused_since', '<', before)
        .where((eb) =>
          eb.or([
            eb.exists(eb.selectFrom('sessions').select('id').whereRef('sessions.spec_hash', '=', 'specs.hash')),
            eb.exists(eb.selectFrom('agents').select('name').whereRef('agents.spec_hash', '=', 'specs.hash')),
            eb.exists(
              eb.selectFrom('agent_versions').select('version').whereRef('agent_versions.spec_hash', '=', 'specs.hash'),
            ),
            eb.exists(eb.selectFrom('spec_delegates').select('spec_hash').whereRef('delegate_hash', '=', 'specs.hash')),
          ]),
        )
        .execute();
      await leaveDelegates(db, before, now);
      await db.deleteFrom('specs').where('unused_since', '<', before).execute();
    });
  }

  /** @throws Error if the hash is unknown, which happens only in a damaged catalog. */
  async spec(hash: string): Promise<AgentSpec> {
    const known = this.#specs.get(hash);
    if (known) return known;
    const row = await this.db.selectFrom('specs').select('spec').where('hash', '=', hash).executeTakeFirst();
    if (!row) throw new Error(`the catalog has no agent spec ${hash}`);
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- validated before it was stored
    const spec = JSON.parse(this.cipher.openText(row.spec, `spec/${hash}`)) as AgentSpec;
    this.#specs.set(hash, spec, { size: row.spec.length });
    return spec;
  }
}

/** Keeps the specs to which a spec refers. @throws if the catalog lacks one of them */
async function referToDelegates(db: Transaction<Tables>, hash: string, { delegates = [] }: AgentSpec): Promise<void> {
  const hashes = new Set(delegates.map(({ spec }) => spec));
  if (hashes.size === 0) return;
  await db
    .insertInto('spec_delegates')
    .values([...hashes].map((delegate) => ({ spec_hash: hash, delegate_hash: delegate })))
    .onConflict((conflict) => conflict.doNothing())
    .execute();
}

/** Ends the references of the specs that are unused since before this time: what they refer to may be unused, too. */
async function leaveDelegates(db: Transaction<Tables>, before: string, now: string): Promise<void> {
  const unused = db.selectFrom('specs').select('hash').where('unused_since', '<', before);
  const left = db.selectFrom('spec_delegates').select('delegate_hash').where('spec_hash', 'in', unused);
  await db.updateTable('specs').set({ unused_since: now }).where('hash', 'in', left).execute();
  await db.deleteFrom('spec_delegates').where('spec_hash', 'in', unused).execute();
}

/** Adds a version to an agent, whose row the transaction has locked. */
export async function addVersion(
  db: Transaction<Tables>,
  locked: AgentRow,
  specHash: string,
  now: string,
): Promise<AgentRow> {
  const version = (await lastVersion(db, locked.name)) + 1;
  await db
    .insertInto('agent_versions')
    .values({ agent_name: locked.name, version, spec_hash: specHash, created_at: now })
    .execute();
  const next = { version, spec_hash: specHash, updated_at: now };
  await db.updateTable('agents').set(next).where('name', '=', locked.name).execute();
  return { ...locked, ...next };
}

/** The highest version of an agent. Includes deleted agents: one that is created again continues their numbering. */
async function lastVersion(db: Transaction<Tables>, name: string): Promise<number> {
  const { last } = await db
    .selectFrom('agent_versions')
    .select((eb) => eb.fn.max('version').as('last'))
    .where('agent_name', '=', name)
    .executeTakeFirstOrThrow();
  return last ?? 0;
}
