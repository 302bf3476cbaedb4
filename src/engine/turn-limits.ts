import type { KernelCatalog } from '../catalog/catalog.ts';
import type { SessionRow } from '../catalog/schema.ts';
import type { Config } from '../config.ts';
import { EngineError } from './errors.ts';
import type { Limits } from './limits.ts';

/**
 * A subject may use this many times the free capacity, which shrinks as the server fills up: one subject alone reaches
 * four fifths of the limit, n subjects reach 4/(1 + 4n) each. Some capacity always remains for the next subject.
 */
const SHARE_OF_FREE = 4;

/** A request that has not become a turn after this time most likely never will. */
const REQUEST_MS = 60_000;

/** How far past its time limit a turn may end and be archived. */
const GRACE_MS = 3_600_000;

interface Admission {
  sessionId: string;
  subject: string;
}

interface TurnLimitsOptions {
  catalog: { turns: Pick<KernelCatalog['turns'], 'countOpen'> };
  limits: () => Pick<Limits, 'turns' | 'turnsPerSubject'>;
  config: Pick<Config, 'turnSeconds'>;
}

/**
 * Limits the concurrent turns, per subject and in total. Turns are counted in the index, from the request until the end
 * is archived, so that a crash leaves nothing behind and all processes see the same count. Concurrent requests to other
 * processes are not in the index yet: with several processes the limits may be exceeded by the number of turns that are
 * requested within a few milliseconds.
 */
export class TurnLimits {
  readonly #options: TurnLimitsOptions;
  /** Admitted by this process: some of their turns are in the index already. */
  readonly #admitted = new Set<Admission>();

  constructor(options: TurnLimitsOptions) {
    this.#options = options;
  }

  /**
   * Admits a turn, which replaces the running turn of its session, if any. Returns a function to call once the turn is
   * in the index, or never will be; repeated calls have no effect.
   * @throws EngineError `too_many_turns`
   */
  async admit({ id, subject_id: subject }: Pick<SessionRow, 'id' | 'subject_id'>): Promise<() => void> {
    const { catalog, limits, config } = this.#options;
    const { turns: limit, turnsPerSubject } = limits();
    if (limit === Infinity && turnsPerSubject === Infinity) return () => undefined;
    const now = Date.now();
    // Their sessions are not counted in the index, so that no turn counts twice, whenever it is added to the index.
    const admitted = new Set(this.#admitted);
    const running = await catalog.turns.countOpen({
      except: [id, ...Array.from(admitted, ({ sessionId }) => sessionId)],
      createdSince: new Date(now - config.turnSeconds * 1000 - GRACE_MS).toISOString(),
      requestedSince: new Date(now - REQUEST_MS).toISOString(),
    });
    for (const one of admitted.union(this.#admitted)) running.set(one.subject, (running.get(one.subject) ?? 0) + 1);
    const own = running.get(subject) ?? 0;
    const all = running.values().reduce((sum, count) => sum + count, 0);
    if (own >= turnsPerSubject) {
      throw new EngineError('too_many_turns', `${own} of your turns run, and no more may: wait until one has ended`);
    }
    if (own >= SHARE_OF_FREE * (limit - all)) {
      throw new EngineError(
        'too_many_turns',
        `the server is busy with ${all} turns, ${own} of them yours: try again soon`,
      );
    }
    const admission = { sessionId: id, subject };
    this.#admitted.add(admission);
    return () => void this.#admitted.delete(admission);
  }
}
