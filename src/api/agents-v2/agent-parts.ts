import type { z } from 'zod';
import type { Catalog } from '../../features/catalog.ts';
import type { AgentPartType } from '../../features/agent-sessions/tables.ts';
import type { PartsQuery } from '../../features/agent-sessions/agent-parts.ts';
import type { PageOf } from '../../features/agent-sessions/search-rows.ts';
import { identifier } from '../../spec/bounds.ts';
import { ApiError, type ErrorKind } from '../http/errors.ts';
import { AGENTS_V2_ERRORS } from './errors.ts';
import { MAX_PAGE_LENGTH, pageTooLarge, rangeOf, refuseReserved, type paging } from './catalog-queries.ts';
import type { Skill } from './wire/agent.ts';
import type { Environment } from './wire/environment.ts';

interface PartKind<T> {
  type: AgentPartType;
  notFound: ErrorKind;
  nameOf: (part: T) => string;
  /** The columns by which lists can be searched, beside the name. */
  columnsOf: (part: T) => { description: string; kind: string | null };
}

type ListQuery = Omit<PartsQuery, keyof PageOf> & z.output<typeof paging>;

/** The skills of the catalog, or its environments. */
export class Parts<T> {
  readonly #catalog: Catalog;
  readonly #kind: PartKind<T>;

  constructor(catalog: Catalog, kind: PartKind<T>) {
    this.#catalog = catalog;
    this.#kind = kind;
  }

  /** @throws ApiError if the name is taken or reserved */
  async create(part: T): Promise<T> {
    const { type, nameOf } = this.#kind;
    const name = nameOf(part);
    refuseReserved(name);
    const row = { name, ...this.#toRow(part) };
    if (await this.#catalog.agentParts.insert(type, row, new Date().toISOString())) return part;
    throw new ApiError(AGENTS_V2_ERRORS.already_exists, `there is already a ${type} ${JSON.stringify(name)}`);
  }

  async find(name: string): Promise<T | undefined> {
    const isName = identifier.safeParse(name).success;
    const definition = isName ? await this.#catalog.agentParts.get(this.#kind.type, name) : undefined;
    return definition === undefined ? undefined : this.#fromRow(definition);
  }

  /** @throws ApiError */
  async get(name: string): Promise<T> {
    const part = await this.find(name);
    if (part === undefined) throw this.#notFound(name);
    return part;
  }

  /** Replaces a part by the result of `change`, which may throw. @throws ApiError if the part is missing or reserved */
  async change(name: string, change: (current: T) => T): Promise<T> {
    refuseReserved(name);
    if (!identifier.safeParse(name).success) throw this.#notFound(name);
    let changed: T | undefined;
    const toNext = (definition: string) => {
      changed = change(this.#fromRow(definition));
      return this.#toRow(changed);
    };
    await this.#catalog.agentParts.change(this.#kind.type, name, toNext, new Date().toISOString());
    if (changed === undefined) throw this.#notFound(name);
    return changed;
  }

  /** @throws ApiError */
  async delete(name: string): Promise<void> {
    refuseReserved(name);
    const isName = identifier.safeParse(name).success;
    if (!isName || !(await this.#catalog.agentParts.delete(this.#kind.type, name))) throw this.#notFound(name);
  }

  /** @throws ApiError */
  async page(query: ListQuery): Promise<{ items: T[]; total: number; page: number }> {
    const range = { ...query, ...rangeOf(query) };
    const found = await this.#catalog.agentParts.page(this.#kind.type, range, MAX_PAGE_LENGTH);
    if (!found) throw pageTooLarge();
    return { items: found.rows.map((definition) => this.#fromRow(definition)), total: found.total, page: query.page };
  }

  #toRow(part: T) {
    return { ...this.#kind.columnsOf(part), definition: JSON.stringify(part) };
  }

  #fromRow(definition: string): T {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- validated before it was stored
    return JSON.parse(definition) as T;
  }

  #notFound(name: string): ApiError {
    const { type, notFound } = this.#kind;
    return new ApiError(notFound, `there is no ${type} ${JSON.stringify(name)}`);
  }
}

/** A definition with some of its fields replaced; null unsets a field. */
export function patched(current: object, changes: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries({ ...current, ...changes }).filter(([, value]) => value !== null));
}

export function skillsOf(catalog: Catalog): Parts<Skill> {
  return new Parts(catalog, {
    type: 'skill',
    notFound: AGENTS_V2_ERRORS.skill_not_found,
    nameOf: ({ name }) => name,
    columnsOf: ({ description }) => ({ description, kind: null }),
  });
}

export function environmentsOf(catalog: Catalog): Parts<Environment> {
  return new Parts(catalog, {
    type: 'environment',
    notFound: AGENTS_V2_ERRORS.environment_not_found,
    nameOf: ({ id }) => id,
    columnsOf: ({ kind }) => ({ description: '', kind }),
  });
}
