import type { Catalog } from '../catalog/catalog.ts';
import type { TurnRow } from '../catalog/schema.ts';
import type { TurnStart } from '../core/history.ts';
import { COMMAND_LIFETIME_MS } from '../core/session.ts';
import { isTemporalUnavailable } from '../temporal/errors.ts';
import { TurnNotFound, type TurnLogReader } from './turn-log-reader.ts';

/**
 * A request that has not become a turn by then never will: its session does not take so old a command any more. Blobs
 * may be stored for it before it is even in the index.
 */
export const REQUEST_LIFETIME_MS = 2 * COMMAND_LIFETIME_MS;

/** Which turns a session has. The catalog knows it but for a crash at the wrong moment; then Temporal is asked. */
export class TurnIndex {
  readonly #catalog: Catalog;
  readonly #logs: TurnLogReader;

  constructor({ catalog, logs }: { catalog: Catalog; logs: TurnLogReader }) {
    this.#catalog = catalog;
    this.#logs = logs;
  }

  /** The newest turn of a session, as far as that can be known now: if Temporal is away, of those in the index. */
  async knownLast(sessionId: string): Promise<TurnRow | undefined> {
    try {
      return await this.confirmedLast(sessionId);
    } catch (error) {
      if (!isTemporalUnavailable(error)) throw error;
      return this.#catalog.turns.last(sessionId);
    }
  }

  /** The newest turn of a session, without a doubt, but for one that `begins`. Throws if that can't be known now. */
  async confirmedLast(sessionId: string, begins?: string): Promise<TurnRow | undefined> {
    await this.reconcileRequests(sessionId, begins);
    const { turns } = this.#catalog;
    let row = await turns.last(sessionId);
    while (row && !(await this.#exists(row))) row = await turns.last(sessionId, row.sequence ?? undefined);
    return row;
  }

  /** Of a Temporal that was lost, or restored from a backup, the catalog may know turns whose logs are nowhere. */
  async #exists({ id, archived }: TurnRow): Promise<boolean> {
    if (archived) return true;
    try {
      await this.#logs.start(id);
      return true;
    } catch (error) {
      if (error instanceof TurnNotFound) return false;
      throw error;
    }
  }

  /** Makes turns of those requests of a session that have become turns. Temporal is not asked about one that `begins`. */
  async reconcileRequests(sessionId: string, begins?: string): Promise<void> {
    for (const { id, created_at: createdAt } of await this.#catalog.turns.requests(sessionId)) {
      if (id !== begins) await this.#reconcile(id, createdAt);
    }
  }

  /** Enters a turn that has been started; again is no harm. False if its session was deleted. */
  async accept(start: Omit<TurnStart, 'input' | 'resumes'>): Promise<boolean> {
    const { turnId, sessionId, previousTurnId, sequence, createdAt } = start;
    const title = sequence === 1 ? start.title : null;
    return this.#catalog.turns.accept({ turnId, sessionId, previousTurnId, sequence, createdAt, title });
  }

  async #reconcile(turnId: string, requestedAt: string): Promise<void> {
    try {
      await this.accept(await this.#logs.start(turnId));
    } catch (error) {
      if (!(error instanceof TurnNotFound)) throw error;
      if (Date.parse(requestedAt) < Date.now() - REQUEST_LIFETIME_MS) await this.#catalog.turns.withdraw(turnId);
    }
  }
}
