import type { KernelCatalog } from '../catalog/catalog.ts';
import type { LogReading } from '../catalog/log-reader.ts';
import type { TurnRow } from '../catalog/schema.ts';
import type { TurnStart } from '../core/history.ts';
import type { QueuedTurn, QueuePosition } from '../core/turn-queue.ts';
import { COMMAND_LIFETIME_MS } from '../core/session.ts';
import { isTemporalUnavailable } from '../temporal/errors.ts';
import { unlessNotFound, type TurnLogReader } from './turn-log-reader.ts';

/**
 * A request that has not become a turn within this time never will: its session rejects commands of that age. Blobs may
 * be stored for a request before it is in the index.
 */
export const REQUEST_LIFETIME_MS = 2 * COMMAND_LIFETIME_MS;

interface TurnIndexOptions {
  catalog: KernelCatalog;
  logs: TurnLogReader;
  logReading: LogReading;
  /** Called with the session of each turn that was indexed. */
  hintSession: (sessionId: string) => void;
}

/** The turns of a session. The catalog has them; after a crash between two writes, Temporal has the missing ones. */
export class TurnIndex {
  readonly #options: TurnIndexOptions;

  constructor(options: TurnIndexOptions) {
    this.#options = options;
  }

  /** The newest turn of a session; while Temporal is unavailable, the newest one in the index. */
  async knownLast(sessionId: string): Promise<TurnRow | undefined> {
    try {
      return await this.confirmedLast(sessionId);
    } catch (error) {
      if (!isTemporalUnavailable(error)) throw error;
      return this.#options.catalog.turns.last(sessionId);
    }
  }

  /** The newest turn of a session, confirmed by Temporal, apart from the one that `begins`. Throws during an outage. */
  async confirmedLast(sessionId: string, begins?: string): Promise<TurnRow | undefined> {
    await this.reconcileRequests(sessionId, begins);
    const { turns } = this.#options.catalog;
    let row = await turns.last(sessionId);
    while (row && !(await this.#exists(row))) row = await turns.last(sessionId, row.sequence ?? undefined);
    return row;
  }

  /** False for a turn without a log: the catalog may have such turns if Temporal's data was lost or restored. */
  async #exists({ id, archived }: TurnRow): Promise<boolean> {
    return Boolean(archived) || (await unlessNotFound(this.#options.logs.start(id))) !== undefined;
  }

  /** Indexes the requests of a session that have become turns, except for the one that `begins`. */
  async reconcileRequests(sessionId: string, begins?: string): Promise<void> {
    for (const request of await this.#options.catalog.turns.requests(sessionId)) {
      if (request.id !== begins) await this.#reconcile(request);
    }
  }

  /** The turns that wait in the queue of a session whose requests were reconciled, in their order. */
  async queued(sessionId: string): Promise<QueuedTurn[]> {
    const queue: QueuedTurn[] = [];
    for (const { id: turnId, queue_number: number } of await this.#options.catalog.turns.requests(sessionId)) {
      if (number === null) continue;
      // Temporal's data may have been lost or restored.
      const { queued } = (await unlessNotFound(this.#options.logs.start(turnId))) ?? {};
      const isOpen = queued && (await unlessNotFound(this.#options.logs.close(turnId).then((close) => !close)));
      if (isOpen) queue.push({ turnId, ...queued });
    }
    return queue.toSorted((a, b) => a.number - b.number);
  }

  /** Indexes a turn that was started. May be repeated. False if the session was deleted. */
  async accept(start: Omit<TurnStart, 'resumes' | 'queued'> & { queued?: QueuePosition }): Promise<boolean> {
    const { turnId, sessionId, previousTurnId, sequence, createdAt, queued, begun } = start;
    if (queued) return this.#options.catalog.turns.enqueue({ turnId, sessionId, createdAt, number: queued.number });
    const accepted = await this.#options.catalog.turns.accept({
      turnId,
      sessionId,
      previousTurnId,
      sequence,
      createdAt,
      title: sequence === 1 ? start.title : null,
      ...(begun && { begunAt: begun.at }),
      ...(await this.#options.logReading.ofStart(start)),
    });
    if (accepted) this.#options.hintSession(sessionId);
    return accepted;
  }

  async #reconcile({ id: turnId, created_at: requestedAt, queue_number: number }: TurnRow): Promise<void> {
    const start = await unlessNotFound(this.#options.logs.start(turnId));
    if (start && (!start.queued || number === null)) await this.accept(start);
    const isExpired = Date.parse(requestedAt) < Date.now() - REQUEST_LIFETIME_MS;
    if (!start && isExpired) await this.#options.catalog.turns.withdraw(turnId);
  }
}
