import type { Catalog } from '../catalog/catalog.ts';
import type { SessionRow } from '../catalog/schema.ts';
import type { Config } from '../config.ts';
import { ApiError } from '../api/http/errors.ts';
import type { Limits } from './limits.ts';

/**
 * A subject may hold so many times what is free. The fuller the server, the less that is: one subject alone comes to
 * four fifths of all, n of them to 4/(1 + 4n) each. Some room is always free for who comes next.
 */
const SHARE_OF_FREE = 4;

/** A request that has not become a turn by then most likely never will. */
const REQUEST_MS = 60_000;

/** How much longer than its time limit a turn may take to end, and to get into the archive. */
const GRACE_MS = 3_600_000;

interface TurnLimitsOptions {
  catalog: Catalog;
  limits: () => Limits;
  config: Pick<Config, 'turnSeconds'>;
}

/**
 * Limits the turns that run at once, of each subject and in all. They are counted in the index of turns, from the
 * request until the end is archived, so that nothing is left over after a crash, and all processes count the same. What
 * is asked for at the same moment elsewhere is not in the index yet: with several processes the limits may be exceeded
 * by as many turns as are asked for within some milliseconds.
 */
export class TurnLimits {
  readonly #options: TurnLimitsOptions;
  /** Let in here and not in the index yet, by subject. */
  readonly #onTheWay = new Map<string, number>();

  constructor(options: TurnLimitsOptions) {
    this.#options = options;
  }

  /**
   * Lets a turn in. It takes the place of the one that runs in its session, if any. Gives the function to call when it
   * is in the index, or will not be.
   * @throws ApiError `too_many_turns`
   */
  async admit({ id, subject_id: subject }: SessionRow): Promise<() => void> {
    const { catalog, limits, config } = this.#options;
    const { turns: limit, turnsPerSubject } = limits();
    if (limit === Infinity && turnsPerSubject === Infinity) return () => undefined;
    const now = Date.now();
    const running = await catalog.turns.countOpen({
      except: id,
      createdSince: new Date(now - config.turnSeconds * 1000 - GRACE_MS).toISOString(),
      requestedSince: new Date(now - REQUEST_MS).toISOString(),
    });
    for (const [other, count] of this.#onTheWay) running.set(other, (running.get(other) ?? 0) + count);
    const own = running.get(subject) ?? 0;
    const all = running.values().reduce((sum, count) => sum + count, 0);
    if (own >= turnsPerSubject) {
      throw new ApiError('too_many_turns', `${own} of your turns run, and no more may: wait until one has ended`);
    }
    if (own >= SHARE_OF_FREE * (limit - all)) {
      throw new ApiError(
        'too_many_turns',
        `the server is busy with ${all} turns, ${own} of them yours: try again soon`,
      );
    }
    return this.#enter(subject);
  }

  #enter(subject: string): () => void {
    this.#onTheWay.set(subject, (this.#onTheWay.get(subject) ?? 0) + 1);
    let isIn = false;
    return () => {
      if (isIn) return;
      isIn = true;
      const left = (this.#onTheWay.get(subject) ?? 0) - 1;
      if (left > 0) this.#onTheWay.set(subject, left);
      else this.#onTheWay.delete(subject);
    };
  }
}
