import type { Selectable } from 'kysely';
import type { AgentPartType } from './tables.ts';
import type { Tables } from '../../catalog/schema.ts';
import { contains, containsText, searchRows, type PageOf, type RowPage, type SortKey } from './search-rows.ts';
import { changeRows, countRows, Store } from '../../catalog/store.ts';

/** A skill or an environment. */
interface AgentPart {
  name: string;
  /** The kind of an environment. */
  kind: string | null;
  description: string;
  /** JSON. */
  definition: string;
}

export interface PartsQuery extends PageOf {
  /** A part of the name. */
  name?: string | undefined;
  kind?: string | undefined;
  /** A part of the name or the description. */
  search?: string | undefined;
  sort: SortKey<'created_at' | 'name'>[];
}

type PartRow = Selectable<Tables['agent_parts']>;
type Header = Pick<PartRow, 'name' | 'description'> & { size: number };

/** The skills and environments to which agents refer by name. */
export class AgentParts extends Store {
  /** The definition, as JSON. */
  async get(type: AgentPartType, name: string): Promise<string | undefined> {
    const [part] = await this.#read(type, [name]);
    return part?.definition;
  }

  /** Inserts a part. False if there is one with this name. */
  async insert(type: AgentPartType, part: AgentPart, now: string): Promise<boolean> {
    const row = { type, ...this.#seal(type, part), created_at: now, updated_at: now };
    const inserted = this.db.insertInto('agent_parts').values(row);
    return changeRows(inserted.onConflict((conflict) => conflict.columns(['type', 'name']).doNothing()));
  }

  /**
   * Replaces a part by the result of `change` for its definition; if `change` throws, nothing is changed. False if
   * there is no part with this name.
   */
  async change(
    type: AgentPartType,
    name: string,
    change: (definition: string) => Omit<AgentPart, 'name'>,
    now: string,
  ): Promise<boolean> {
    return this.db.transaction().execute(async (db) => {
      const part = db.updateTable('agent_parts').where('type', '=', type).where('name', '=', name);
      // Locks the row until the commit: a concurrent change waits, then reads this one.
      const row = await part.set({ updated_at: now }).returningAll().executeTakeFirst();
      if (!row) return false;
      await part.set(this.#seal(type, { name, ...change(this.#open(row).definition) })).execute();
      return true;
    });
  }

  /** Deletes a part. False if there is none with this name. */
  async delete(type: AgentPartType, name: string): Promise<boolean> {
    return changeRows(this.db.deleteFrom('agent_parts').where('type', '=', type).where('name', '=', name));
  }

  /** A page of definitions (JSON). Undefined if the stored ones would have more than `maxLength` characters. */
  async page(type: AgentPartType, query: PartsQuery, maxLength: number): Promise<RowPage<string> | undefined> {
    const { search } = query;
    const { rows, total } =
      search === undefined
        ? { rows: await this.#headers(type, query, query), total: await countRows(this.#matching(type, query)) }
        : await searchRows(
            query,
            (batch) => this.#headers(type, query, batch),
            ({ name, description }) =>
              containsText([name, this.cipher.openText(description, aadFor(type, name, 'description'))], search),
          );
    if (rows.reduce((sum, { size }) => sum + size, 0) > maxLength) return undefined;
    const names = rows.map(({ name }) => name);
    const definitions = new Map((await this.#read(type, names)).map(({ name, definition }) => [name, definition]));
    return { rows: names.flatMap((name) => definitions.get(name) ?? []), total };
  }

  #headers(type: AgentPartType, query: PartsQuery, { offset, limit }: PageOf): Promise<Header[]> {
    let headers = this.#matching(type, query).select((eb) => [
      'name',
      'description',
      eb.fn<number>('length', ['definition']).as('size'),
    ]);
    for (const { by, descending } of query.sort) headers = headers.orderBy(by, descending ? 'desc' : 'asc');
    return headers
      .orderBy('name', query.sort.at(-1)?.descending ? 'desc' : 'asc')
      .limit(limit)
      .offset(offset)
      .execute();
  }

  #matching(type: AgentPartType, { name, kind }: PartsQuery) {
    return this.db
      .selectFrom('agent_parts')
      .where('type', '=', type)
      .$if(name !== undefined, (query) => query.where((eb) => contains(eb.ref('name'), name ?? '')))
      .$if(kind !== undefined, (query) => query.where('kind', '=', kind ?? ''));
  }

  async #read(type: AgentPartType, names: string[]): Promise<AgentPart[]> {
    if (names.length === 0) return [];
    const rows = await this.db
      .selectFrom('agent_parts')
      .selectAll()
      .where('type', '=', type)
      .where('name', 'in', names)
      .execute();
    return rows.map((row) => this.#open(row));
  }

  #seal(type: AgentPartType, { name, kind, description, definition }: AgentPart) {
    return {
      name,
      kind,
      description: this.cipher.sealText(description, aadFor(type, name, 'description')),
      definition: this.cipher.sealText(definition, aadFor(type, name, 'definition')),
    };
  }

  #open({ type, name, kind, description, definition }: PartRow): AgentPart {
    return {
      name,
      kind,
      description: this.cipher.openText(description, aadFor(type, name, 'description')),
      definition: this.cipher.openText(definition, aadFor(type, name, 'definition')),
    };
  }
}

function aadFor(type: AgentPartType, name: string, part: 'description' | 'definition'): string {
  return `${type}/${name}/${part}`;
}
