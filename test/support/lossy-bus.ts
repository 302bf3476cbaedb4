import type { RetryNotice } from '../../src/core/attempts.ts';
import type { LiveBus, LiveFrame, LiveListener, LiveOutput, MessageAttempt, Topic } from '../../src/live/bus.ts';

/** A bus that is as unreliable as its contract allows: it drops, duplicates and reorders frames and delivers old snapshots. */
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

  announce(notice: RetryNotice): void {
    this.#bus.announce(notice);
  }

  finish(message: Pick<MessageAttempt, 'turnId' | 'messageId' | 'attempt'>): void {
    this.#bus.finish(message);
  }

  publishOutput(output: LiveOutput): void {
    this.#bus.publishOutput(output);
  }

  finishOutput(output: Pick<LiveOutput, 'turnId' | 'id' | 'attempt'>): void {
    this.#bus.finishOutput(output);
  }

  subscribe(turnId: string, listener: LiveListener): () => void {
    let kept: LiveFrame | undefined;
    return this.#bus.subscribe(turnId, {
      frame: (frame) => {
        const chance = this.#random();
        if (chance < 0.15) return;
        if (chance < 0.3) {
          kept = frame; // delivered after the next frame that is not dropped, if there is one
          return;
        }
        listener.frame(frame);
        if (chance < 0.45) listener.frame(frame);
        if (kept) listener.frame(kept);
        kept = undefined;
      },
      retrying: (notice) => {
        if (this.#random() < 0.5) listener.retrying(notice);
      },
      // A snapshot may be delivered after newer frames.
      snapshot: (snapshot) => {
        if (this.#random() < 0.5) listener.snapshot(snapshot);
        else setImmediate(() => listener.snapshot(snapshot));
      },
      output: (output) => {
        const chance = this.#random();
        if (chance >= 0.3) listener.output(output);
        if (chance >= 0.8) listener.output(output);
      },
      lost: () => listener.lost(),
    });
  }

  requestSnapshots(turnId: string): void {
    if (this.#random() < 0.5) this.#bus.requestSnapshots(turnId);
  }

  hint(topic: Topic): void {
    if (this.#random() < 0.5) this.#bus.hint(topic);
  }

  onHint(topic: Topic, listener: () => void): () => void {
    return this.#bus.onHint(topic, listener);
  }
}

/** A small seeded generator, so that a failure can be reproduced. */
export function mulberry32(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}
