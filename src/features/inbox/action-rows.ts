import { sql, type ExpressionBuilder } from 'kysely';
import { ActionIndex, type Action } from './action-index.ts';
import { SHOWN_SESSIONS } from '../../catalog/session-types.ts';
import type { ActionEventType } from '../../catalog/outbox.ts';
import type { ActionRow } from './tables.ts';
import type { Tables } from '../../catalog/schema.ts';
import { Store } from '../../catalog/store.ts';

/** A position in a listing: after the action with this time and id. */
interface ActionPosition {
  requestedAt: string;
  id: string;
}

/** Selects the actions that have one of the groups `audiences`, and not `excluded`: see `src/auth/rights.ts`. */
interface ActionReader {
  audiences: string[];
  excluded: string;
}

interface ActionPage extends ActionReader {
  settled: boolean;
  agentName: string | undefined;
  order: 'asc' | 'desc';
  after: ActionPosition | undefined;
  limit: number;
}

/** A change of an action, with the action as it was after the change. */
export interface ActionEvent {
  sequence: number;
  type: ActionEventType;
  action: Action;
  audiences: string[];
}

export type PendingAction = Pick<ActionRow, 'kind' | 'turn_id' | 'tool_call_id'>;

/** Reads the index of actions. */
export class Actions extends Store {
  readonly #index = new ActionIndex(this.cipher);

  /**
   * Lists one page of actions, by the time of their request. The indexes begin with the audience, so only one page of
   * rows is read for each audience.
   */
  async list({ audiences, limit, order, ...page }: ActionPage): Promise<Action[]> {
    const found = await Promise.all(audiences.map((audience) => this.#positions({ ...page, audience, limit, order })));
    const byId = new Map(found.flat().map((one) => [one.id, one]));
    const direction = order === 'asc' ? 1 : -1;
    const ids = [...byId.values()]
      .sort((a, b) => direction * compare(a.requestedAt + a.id, b.requestedAt + b.id))
      .slice(0, limit)
      .map(({ id }) => id);
    const rows = new Map((await this.#rows(ids)).map((row) => [row.id, row]));
    return ids.flatMap((id) => rows.get(id) ?? []).map((row) => this.#index.open(row));
  }

  /** Whether the session has an action that the reader may decide, or could decide while it was pending. */
  async hasFor(sessionId: string, reader: ActionReader): Promise<boolean> {
    const found = this.#decidableBy(reader).select('actions.id').where('actions.session_id', '=', sessionId);
    return (await found.limit(1).executeTakeFirst()) !== undefined;
  }

  /** The pending actions of sessions, by the sessions' ids, in the order of the requests. */
  async pendingOf(sessionIds: string[]): Promise<Map<string, PendingAction[]>> {
    if (sessionIds.length === 0) return new Map();
    const rows = await this.db
      .selectFrom('actions')
      .select(['session_id', 'kind', 'turn_id', 'tool_call_id'])
      .where('session_id', 'in', sessionIds)
      .where('status', '=', 'pending')
      .orderBy('id')
      .execute();
    return Map.groupBy(rows, ({ session_id: id }) => id);
  }

  /** Whether a session waits for a person, or may: runs of the Runs API have no actions here, but open turns. */
  async isAnyPending(sessionIds: string[]): Promise<boolean> {
    const found = this.db
      .selectFrom('actions')
      .select('id')
      .where('session_id', 'in', sessionIds)
      .where('status', '=', 'pending')
      .limit(1);
    if (await found.executeTakeFirst()) return true;
    const openOfRun = this.db
      .selectFrom('turns')
      .innerJoin('sessions', 'sessions.id', 'turns.session_id')
      .select('turns.id')
      .where('turns.session_id', 'in', sessionIds)
      // A literal, so that SQLite may use the partial index.
      .where('turns.archived', '=', sql.lit(0))
      .where('sessions.type', 'not in', SHOWN_SESSIONS)
      .limit(1);
    return (await openOfRun.executeTakeFirst()) !== undefined;
  }

  /** An action that the reader may decide, or could decide while it was pending. */
  async find(id: string, reader: ActionReader): Promise<Action | undefined> {
    const found = this.#decidableBy(reader).selectAll('actions').where('actions.id', '=', id);
    const row = await found.limit(1).executeTakeFirst();
    return row && this.#index.open(row);
  }

  /** An action as it was after a change; undefined if its session was removed. */
  async get(id: string, { status, decisions }: Pick<ActionRow, 'status'> & { decisions: number }) {
    const [row] = await this.#rows([id]);
    return row && this.#asOf(row, { status, decisions });
  }

  /** Up to `limit` changes after a number, in order. */
  async events(after: number, limit: number): Promise<ActionEvent[]> {
    const events = await this.db
      .selectFrom('action_events')
      .selectAll()
      .where('sequence', '>', after)
      .orderBy('sequence')
      .limit(limit)
      .execute();
    const ids = [...new Set(events.map(({ action_id: id }) => id))];
    const rows = new Map((await this.#rows(ids)).map((row) => [row.id, row]));
    const audiences = await this.#audiences(ids);
    return events.flatMap(({ sequence, action_id: id, type, status, decisions }) => {
      const row = rows.get(id);
      if (!row) return [];
      return { sequence, type, action: this.#asOf(row, { status, decisions }), audiences: audiences.get(id) ?? [] };
    });
  }

  /** The highest number so far: all changes up to it are committed. */
  async newest(): Promise<number> {
    const row = await this.db.selectFrom('counters').select('value').where('name', '=', 'events').executeTakeFirst();
    return row?.value ?? 0;
  }

  #decidableBy({ audiences, excluded }: ActionReader) {
    return (
      this.db
        .selectFrom('actions')
        // A cross join, since SQLite keeps its order: otherwise it reads all actions of the audience.
        .crossJoin('action_audience')
        .whereRef('action_audience.action_id', '=', 'actions.id')
        .where('audience', 'in', audiences)
        .where(isNotExcluded(excluded))
    );
  }

  async #positions(page: Omit<ActionPage, 'audiences'> & { audience: string }): Promise<ActionPosition[]> {
    const { audience, excluded, settled, agentName, order, after, limit } = page;
    let query = this.db
      .selectFrom('action_audience')
      .select(['action_id as id', 'requested_at as requestedAt'])
      .where('audience', '=', audience)
      .where('settled', '=', settled ? 1 : 0)
      .where(isNotExcluded(excluded));
    if (agentName !== undefined) query = query.where('agent_name', '=', agentName);
    if (after) {
      query = query.where((eb) =>
        eb(
          eb.refTuple('requested_at', 'action_id'),
          order === 'asc' ? '>' : '<',
          eb.tuple(after.requestedAt, after.id),
        ),
      );
    }
    return query.orderBy('requested_at', order).orderBy('action_id', order).limit(limit).execute();
  }

  async #rows(ids: string[]): Promise<ActionRow[]> {
    if (ids.length === 0) return [];
    return this.db.selectFrom('actions').selectAll().where('id', 'in', ids).execute();
  }

  async #audiences(ids: string[]): Promise<Map<string, string[]>> {
    if (ids.length === 0) return new Map();
    const rows = await this.db
      .selectFrom('action_audience')
      .select(['action_id', 'audience'])
      .where('action_id', 'in', ids)
      .execute();
    const grouped = Map.groupBy(rows, ({ action_id: id }) => id);
    return new Map([...grouped].map(([id, of]) => [id, of.map(({ audience }) => audience)]));
  }

  #asOf(row: ActionRow, { status, decisions }: Pick<ActionRow, 'status'> & { decisions: number }): Action {
    const action = this.#index.open(row);
    return { ...action, status, decisions: action.decisions.slice(0, decisions) };
  }
}

/** Selects actions that do not have this group: see `ActionReader`. */
function isNotExcluded(group: string) {
  return (eb: ExpressionBuilder<Tables, 'action_audience'>) => {
    const others = eb.selectFrom('action_audience as others').select('others.action_id');
    const ofAction = others.whereRef('others.action_id', '=', 'action_audience.action_id');
    return eb.not(eb.exists(ofAction.where('others.audience', '=', group)));
  };
}

/** Compares like the catalog, by bytes. */
function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
