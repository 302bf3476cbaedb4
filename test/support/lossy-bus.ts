import type { InProgress, LiveBus, LiveFrame, LiveSnapshot } from '../../src/live/bus.ts';
import { InProcessBus } from '../../src/live/in-process-bus.ts';

/** A bus that makes use of its contract: it drops, doubles and reorders frames, and gives old snapshots, on purpose. */
export class LossyBus implements LiveBus {
  readonly #bus = new InProcessBus();
  readonly #random: () => number;

  constructor(seed: number) {
    this.#random = mulberry32(seed);
  }

  publish(frame: LiveFrame): void {
    this.#bus.publish(frame);
  }

  finish(message: Pick<InProgress, 'turnId' | 'messageId' | 'attempt'>): void {
    this.#bus.finish(message);
  }

  subscribe(turnId: string, onFrame: (frame: LiveFrame) => void): () => void {
    let kept: LiveFrame | undefined;
    return this.#bus.subscribe(turnId, (frame) => {
      const chance = this.#random();
      if (chance < 0.15) return;
      if (chance < 0.3) {
        kept = frame; // it comes behind a later one, if there is one
        return;
      }
      onFrame(frame);
      if (chance < 0.45) onFrame(frame);
      if (kept) onFrame(kept);
      kept = undefined;
    });
  }

  async snapshots(turnId: string): Promise<LiveSnapshot[]> {
    if (this.#random() < 0.5) return [];
    const snapshots = await this.#bus.snapshots(turnId);
    // By the time that it is looked at, a snapshot may be old.
    if (this.#random() < 0.5) await new Promise((resolve) => setImmediate(resolve));
    return snapshots;
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
