import type { Catalog } from '../catalog/catalog.ts';
import type { TurnRow } from '../catalog/schema.ts';
import type { TurnStart } from '../log/history.ts';
import type { InputItem } from '../log/records.ts';
import { TurnNotFound, type TurnLogs } from './turn-logs.ts';

/** A request that has not become a turn by then never will: no command is under way for so long. */
const REQUEST_LIFETIME_MS = 3_600_000;

const MAX_TITLE_LENGTH = 50;

/** Which turns a session has. The catalog knows it but for a crash at the wrong moment; then Temporal is asked. */
export class TurnIndex {
  readonly #catalog: Catalog;
  readonly #logs: TurnLogs;

  constructor({ catalog, logs }: { catalog: Catalog; logs: TurnLogs }) {
    this.#catalog = catalog;
    this.#logs = logs;
  }

  /** The newest turn of a session. */
  async last(sessionId: string): Promise<TurnRow | undefined> {
    await this.settleRequests(sessionId);
    return this.#catalog.turns.last(sessionId);
  }

  /** Makes turns of those requests of a session that have become turns. */
  async settleRequests(sessionId: string): Promise<void> {
    for (const { id, created_at: createdAt } of await this.#catalog.turns.requests(sessionId)) {
      await this.#settle(id, createdAt);
    }
  }

  /** Enters a turn that has been started; again is no harm. */
  async accept({ turnId, sessionId, previousTurnId, sequence, createdAt, input }: TurnStart): Promise<void> {
    const title = titleOf(input);
    await this.#catalog.turns.accept({ turnId, sessionId, previousTurnId, sequence, createdAt, title });
  }

  async #settle(turnId: string, requestedAt: string): Promise<void> {
    try {
      await this.accept(await this.#logs.start(turnId));
    } catch (error) {
      if (!(error instanceof TurnNotFound)) throw error;
      if (Date.parse(requestedAt) < Date.now() - REQUEST_LIFETIME_MS) await this.#catalog.turns.withdraw(turnId);
    }
  }
}

/** A session's title if nobody gives it one: how its first text begins. */
export function titleOf(input: InputItem[]): string | null {
  for (const item of input) {
    if (item.type !== 'user.message') continue;
    const parts = typeof item.content === 'string' ? [{ type: 'text' as const, text: item.content }] : item.content;
    const text = parts.find((part) => part.type === 'text')?.text;
    // Large texts may stand in the blob store, and nobody needs them here.
    if (typeof text !== 'string') continue;
    const start = text.trim().slice(0, 2 * MAX_TITLE_LENGTH);
    return Array.from(start).slice(0, MAX_TITLE_LENGTH).join('').trim() || null;
  }
  return null;
}
