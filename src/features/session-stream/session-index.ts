import type { PositionedTurn, TurnPositions } from './turn-positions.ts';
import type { TurnRow } from '../../catalog/schema.ts';
import { EngineError } from '../../engine/errors.ts';
import type { TurnIndex } from '../../engine/turn-index.ts';
import { unlessNotFound, type TurnLogReader } from '../../engine/turn-log-reader.ts';

/** The number of turns that get their positions in one transaction. */
const BATCH_SIZE = 100;

/**
 * The number of positions that are skipped for a turn whose history was lost. Readers may have received events of it
 * that can no longer be counted, and the positions of the next turn must be higher. More than the longest turn has.
 */
const LOST_EVENTS = 1_000_000;

/**
 * The durable events of a session, counted over all of its turns in order. The position of an event is its number in
 * this count, from 1. It never changes: forks and roots without history are counted where they were started.
 *
 * The position of a turn, the number of events before it, is fixed as soon as the turn before it has ended. It is
 * stored when a reader first needs it, so a session that is not read this way costs nothing. Positions are looked up by
 * an index, so that the turns before a position need not be read.
 */
export class SessionIndex {
  readonly #turnPositions: TurnPositions;
  readonly #logs: TurnLogReader;
  readonly #turnIndex: TurnIndex;
  readonly #searches = new Map<string, Promise<PositionedTurn | undefined>>();

  constructor({
    catalog,
    logs,
    turnIndex,
  }: {
    catalog: { turnPositions: TurnPositions };
    logs: TurnLogReader;
    turnIndex: TurnIndex;
  }) {
    this.#turnPositions = catalog.turnPositions;
    this.#logs = logs;
    this.#turnIndex = turnIndex;
  }

  /**
   * The turn that has, or while it runs will have, the event after `position`; undefined if there is none yet. A turn
   * whose history was lost is skipped once another turn follows it. Concurrent callers share one search.
   * @throws EngineError `invalid_cursor` if the session cannot have an event at `position`
   */
  turnAfter(sessionId: string, position: number): Promise<PositionedTurn | undefined> {
    const key = `${sessionId}/${position}`;
    const search =
      this.#searches.get(key) ?? this.#search(sessionId, position).finally(() => this.#searches.delete(key));
    this.#searches.set(key, search);
    return search;
  }

  /**
   * The turn that follows one that has ended, or the first one of a session; undefined if there is none yet.
   * @param last with the number of its events, or `lost` if its history was lost
   */
  async turnFollowing(
    sessionId: string,
    last?: { turn: PositionedTurn; length: number | 'lost' },
  ): Promise<PositionedTurn | undefined> {
    for (;;) {
      const next = await this.#turnPositions.firstAfter(sessionId, last?.turn.events_before ?? -1);
      if (next || !(await this.#placeNext(sessionId, last?.turn, last?.length))) return next;
    }
  }

  async #search(sessionId: string, position: number): Promise<PositionedTurn | undefined> {
    const turnPositions = this.#turnPositions;
    for (let from = position; ;) {
      const turn = await turnPositions.lastAt(sessionId, from);
      const length = turn && (await this.#lengthOf(turn));
      if (turn && !isPast(turn, length, position)) return turn;
      const next = await turnPositions.firstAfter(sessionId, turn?.events_before ?? -1);
      // If another search has placed `next` since the last query, its position is at most `from`.
      if (next) from = Math.max(from, next.events_before);
      else if (!(await this.#placeNext(sessionId, turn, length))) {
        if (position <= (turn ? endOf(turn, length) : 0)) return undefined;
        throw new EngineError('invalid_cursor', 'the cursor is not from this stream: start again without one');
      }
    }
  }

  /** Gives positions to the turns after `last`, the last turn with one. False if there are none, or `last` runs. */
  async #placeNext(
    sessionId: string,
    last: PositionedTurn | undefined,
    length: number | 'lost' | undefined,
  ): Promise<boolean> {
    const turnPositions = this.#turnPositions;
    if (last && length === undefined) return false;
    const turns = await this.#unplaced(sessionId, last);
    // Another search may have placed these turns since `last` was read.
    if ((await turnPositions.lastAt(sessionId))?.id !== last?.id) return true;
    if (turns.length === 0) return false;
    const placed: { id: string; eventsBefore: number }[] = [];
    let end = last ? endOf(last, length) : 0;
    for (const { id, archived, archived_through: entries } of turns) {
      placed.push({ id, eventsBefore: end });
      // The length of a turn that is not in the archive is read by the next search that needs it.
      if (!archived) break;
      end += entries;
    }
    await turnPositions.place(sessionId, last?.events_before, placed);
    return true;
  }

  /** The turns that get their positions next, without a gap in their sequence except where turns were lost. */
  async #unplaced(sessionId: string, last: TurnRow | undefined): Promise<TurnRow[]> {
    const turnPositions = this.#turnPositions;
    const known = withoutGap(await turnPositions.unplaced(sessionId, BATCH_SIZE), last);
    if (known.length > 0) return known;
    // A process that has started a turn may have died before it indexed the turn.
    await this.#turnIndex.reconcileRequests(sessionId);
    const [first, ...rest] = await turnPositions.unplaced(sessionId, BATCH_SIZE);
    return first ? [first, ...withoutGap(rest, first)] : [];
  }

  /** The number of a turn's events: undefined while it runs, `lost` if it can no longer be read. */
  async #lengthOf({ id, archived, archived_through: entries }: TurnRow): Promise<number | 'lost' | undefined> {
    if (archived) return entries;
    const read = await unlessNotFound(this.#logs.length(id).then((length) => ({ length })));
    return read ? read.length : 'lost';
  }
}

/** Whether the turn has no event after `position`. */
function isPast(turn: PositionedTurn, length: number | 'lost' | undefined, position: number): boolean {
  if (length === undefined) return false;
  return length === 'lost' || position >= turn.events_before + length;
}

/** The last position of a turn; infinite while it runs. */
function endOf(turn: PositionedTurn, length: number | 'lost' | undefined): number {
  if (length === undefined) return Infinity;
  return turn.events_before + (length === 'lost' ? LOST_EVENTS : length);
}

/** The first of the turns, as long as their numbers rise by at most one from that of `last`. */
function withoutGap(turns: TurnRow[], last: TurnRow | undefined): TurnRow[] {
  let previous = last?.sequence ?? 0;
  const gap = turns.findIndex(({ sequence }) => {
    const isGap = (sequence ?? 0) > previous + 1;
    previous = sequence ?? 0;
    return isGap;
  });
  return gap === -1 ? turns : turns.slice(0, gap);
}
