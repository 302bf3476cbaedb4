import type { InProgress, LiveBus, LiveFrame, LiveListener } from '../../src/live/bus.ts';

/** A bus that makes use of its contract: it drops, doubles and reorders frames, and gives old snapshots, on purpose. */
export class LossyBus implements LiveBus {
  readonly #bus: LiveBus;
  readonly #random: () => number;

  constructor(seed: number, bus: LiveBus) {
    this.#bus = bus;
    this.#random = mulberry32(seed);
  }

  publish(frame: LiveFrame): void {
    this.#bus.publish(frame);
  }

  finish(message: Pick<InProgress, 'turnId' | 'messageId' | 'attempt'>): void {
    this.#bus.finish(message);
  }

  subscribe(turnId: string, listener: LiveListener): () => void {
    let kept: LiveFrame | undefined;
    return this.#bus.subscribe(turnId, {
      frame: (frame) => {
        const chance = this.#random();
        if (chance < 0.15) return;
        if (chance < 0.3) {
          kept = frame; // it comes behind a later one, if there is one
          return;
        }
        listener.frame(frame);
        if (chance < 0.45) listener.frame(frame);
        if (kept) listener.frame(kept);
        kept = undefined;
      },
      // By the time that it is looked at, a snapshot may be old.
      snapshot: (snapshot) => {
        if (this.#random() < 0.5) listener.snapshot(snapshot);
        else setImmediate(() => listener.snapshot(snapshot));
      },
      lost: () => listener.lost(),
    });
  }

  ask(turnId: string): void {
    if (this.#random() < 0.5) this.#bus.ask(turnId);
  }
}

/** A small seeded generator, so that a failure can be repeated. */
export function mulberry32(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}
