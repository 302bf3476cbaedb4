import type { SelectQueryBuilder, Transaction } from 'kysely';
import type { AgentSpec } from '../../spec/agent-spec.ts';
import { addVersion, type Agents } from '../../catalog/agents.ts';
import type { AgentRow, Tables } from '../../catalog/schema.ts';
import { contains, containsText, searchRows, type PageOf, type RowPage, type SortKey } from './search-rows.ts';
import { countRows, Store, type CatalogContext } from '../../catalog/store.ts';

/** A version of an agent as the Agents API v2 reads it. */
export interface DefinedAgent {
  name: string;
  version: number;
  spec_hash: string;
  /** JSON; undefined if the version was not stored by this API. */
  definition: string | undefined;
}

interface NewDefinition {
  name: string;
  /** JSON, with the keys in the order of the schema: equal definitions are equal texts. */
  definition: string;
  description: string;
  /** The definition, resolved for the engine as of now. */
  spec: AgentSpec;
  message: string | undefined;
  createdBy: string;
  restoredFrom?: number;
}

/** A version without its content. */
interface RevisionHeader {
  number: number;
  created_at: string;
  created_by: string | null;
  message: string | null;
  restored_from: number | null;
}

interface AgentsQuery extends PageOf {
  /** A part of the name. */
  name?: string | undefined;
  /** A part of the name or the description. */
  search?: string | undefined;
  /** Only agents whose names begin with this; `not`: only the others. */
  prefix?: { is: string } | { not: string } | undefined;
  sort: SortKey<'created_at' | 'name'>[];
}

/** `moved`: the newest version is not the expected one. */
type Put = { outcome: 'stored'; version: number } | { outcome: 'exists' | 'missing' | 'moved' };

/** The definitions of the Agents API v2, beside the specs of `Agents`: both have the same names and versions. */
export class AgentDefinitions extends Store {
  readonly #agents: Agents;

  constructor(context: CatalogContext, agents: Agents) {
    super(context);
    this.#agents = agents;
  }

  /** The newest version of an agent, or an earlier one. */
  async get(name: string, version?: number): Promise<DefinedAgent | undefined> {
    const row = await this.db
      .selectFrom('agents')
      .innerJoin('agent_versions as v', 'v.agent_name', 'agents.name')
      .leftJoin('agent_definitions as d', (join) =>
        join.onRef('d.agent_name', '=', 'v.agent_name').onRef('d.version', '=', 'v.version'),
      )
      .select(['agents.name', 'v.version', 'v.spec_hash', 'd.definition'])
      .where('agents.name', '=', name)
      .where((eb) => eb('v.version', '=', version ?? eb.ref('agents.version')))
      .executeTakeFirst();
    if (!row) return undefined;
    return { ...row, definition: this.#opened(name, row.version, 'definition', row.definition) ?? undefined };
  }

  /** Stores the first version of an agent. `exists` if there is an agent with this name. */
  async create(definition: NewDefinition, now: string): Promise<Put> {
    const specHash = await this.#agents.putSpec(definition.spec, now);
    return this.db.transaction().execute(async (db) => {
      const created = await db
        .insertInto('agents')
        .values({ name: definition.name, version: 0, spec_hash: specHash, created_at: now, updated_at: now })
        .onConflict((conflict) => conflict.column('name').doNothing())
        .returningAll()
        .executeTakeFirst();
      return created ? this.#add(db, created, { definition, specHash, now }) : { outcome: 'exists' };
    });
  }

  /** Stores the next version of an agent, unless the newest has the same definition. */
  async put(definition: NewDefinition, expectedVersion: number | undefined, now: string): Promise<Put> {
    const { name } = definition;
    const specHash = await this.#agents.putSpec(definition.spec, now);
    return this.db.transaction().execute(async (db) => {
      // Locks the row until the commit.
      const newest = await db
        .updateTable('agents')
        .set((eb) => ({ name: eb.ref('name') }))
        .where('name', '=', name)
        .returningAll()
        .executeTakeFirst();
      if (!newest) return { outcome: 'missing' };
      const { version } = newest;
      if (expectedVersion !== undefined && version !== expectedVersion) return { outcome: 'moved' };
      const row = await db
        .selectFrom('agent_definitions')
        .select('definition')
        .where('agent_name', '=', name)
        .where('version', '=', version)
        .executeTakeFirst();
      const current = row && this.cipher.openText(row.definition, aadFor(name, version, 'definition'));
      if (current === definition.definition) return { outcome: 'stored', version };
      return this.#add(db, newest, { definition, specHash, now });
    });
  }

  async #add(
    db: Transaction<Tables>,
    agent: AgentRow,
    { definition, specHash, now }: { definition: NewDefinition; specHash: string; now: string },
  ): Promise<Put> {
    const { name, version } = await addVersion(db, agent, specHash, now);
    const { message } = definition;
    const sealed = (part: SealedPart, text: string) => this.cipher.sealText(text, aadFor(name, version, part));
    await db
      .insertInto('agent_definitions')
      .values({
        agent_name: name,
        version,
        definition: sealed('definition', definition.definition),
        description: sealed('description', definition.description),
        message: message === undefined ? null : sealed('message', message),
        created_by: definition.createdBy,
        restored_from: definition.restoredFrom ?? null,
      })
      .execute();
    return { outcome: 'stored', version };
  }

  /**
   * A page of the newest versions of all agents. Undefined if the stored definitions would have more than `maxLength`
   * characters.
   */
  async page(query: AgentsQuery, maxLength: number): Promise<RowPage<DefinedAgent> | undefined> {
    const { search } = query;
    const { rows, total } =
      search === undefined
        ? { rows: await this.#headers(query, query), total: await countRows(this.#matching(query)) }
        : await searchRows(
            query,
            (batch) => this.#headers(query, batch),
            ({ name, version, description }) =>
              containsText([name, this.#opened(name, version, 'description', description) ?? ''], search),
          );
    if (rows.reduce((sum, { size }) => sum + size, 0) > maxLength) return undefined;
    const agents = await Promise.all(rows.map(({ name, version }) => this.get(name, version)));
    return { rows: agents.filter((agent) => agent !== undefined), total };
  }

  /** The versions of an agent; undefined if there is no such agent. */
  async revisions(
    name: string,
    { offset, limit, descending }: PageOf & { descending: boolean },
  ): Promise<RowPage<RevisionHeader> | undefined> {
    const versions = this.db
      .selectFrom('agents')
      .innerJoin('agent_versions as v', 'v.agent_name', 'agents.name')
      .where('agents.name', '=', name);
    const { count } = await versions.select((eb) => eb.fn.countAll<number>().as('count')).executeTakeFirstOrThrow();
    if (count === 0) return undefined;
    const rows = await versions
      .leftJoin('agent_definitions as d', (join) =>
        join.onRef('d.agent_name', '=', 'v.agent_name').onRef('d.version', '=', 'v.version'),
      )
      .select(['v.version as number', 'v.created_at', 'd.created_by', 'd.message', 'd.restored_from'])
      .orderBy('v.version', descending ? 'desc' : 'asc')
      .limit(limit)
      .offset(offset)
      .execute();
    return {
      rows: rows.map((row) => ({ ...row, message: this.#opened(name, row.number, 'message', row.message) })),
      total: count,
    };
  }

  #headers(query: AgentsQuery, { offset, limit }: PageOf) {
    let headers = this.#matching(query)
      .leftJoin('agent_definitions as d', (join) =>
        join.onRef('d.agent_name', '=', 'agents.name').onRef('d.version', '=', 'agents.version'),
      )
      .innerJoin('specs', 'specs.hash', 'agents.spec_hash')
      .select((eb) => [
        'agents.name',
        'agents.version',
        'd.description',
        eb.fn<number>('length', [eb.fn.coalesce('d.definition', 'specs.spec')]).as('size'),
      ]);
    for (const { by, descending } of query.sort) headers = headers.orderBy(`agents.${by}`, descending ? 'desc' : 'asc');
    return headers
      .orderBy('agents.name', query.sort.at(-1)?.descending ? 'desc' : 'asc')
      .limit(limit)
      .offset(offset)
      .execute();
  }

  #matching({ name, prefix }: AgentsQuery): SelectQueryBuilder<Tables, 'agents', object> {
    let agents: SelectQueryBuilder<Tables, 'agents', object> = this.db.selectFrom('agents');
    if (name !== undefined) agents = agents.where((eb) => contains(eb.ref('agents.name'), name));
    if (prefix === undefined) return agents;
    return 'is' in prefix
      ? agents.where('agents.name', 'like', `${prefix.is}%`)
      : agents.where('agents.name', 'not like', `${prefix.not}%`);
  }

  #opened(name: string, version: number, part: SealedPart, sealed: string | null): string | null {
    return sealed === null ? null : this.cipher.openText(sealed, aadFor(name, version, part));
  }
}

type SealedPart = 'definition' | 'description' | 'message';

function aadFor(name: string, version: number, part: SealedPart): string {
  return `agent/${name}/${version}/${part}`;
}
