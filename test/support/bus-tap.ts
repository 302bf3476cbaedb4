import { setImmediate as nextTick } from 'node:timers/promises';
import type { LiveBus, LiveFrame, LiveSnapshot } from '../../src/live/bus.ts';

/** Listens to one turn on a bus, for tests that want to know when something has arrived. */
export class BusTap {
  readonly frames: LiveFrame[] = [];
  readonly snapshots: LiveSnapshot[] = [];
  lost = 0;
  readonly close: () => void;
  readonly #bus: LiveBus;
  readonly #turnId: string;

  constructor(bus: LiveBus, turnId: string) {
    this.#bus = bus;
    this.#turnId = turnId;
    this.close = bus.subscribe(turnId, {
      frame: (frame) => this.frames.push(frame),
      snapshot: (snapshot) => this.snapshots.push(snapshot),
      lost: () => (this.lost += 1),
    });
  }

  /** Waits until so many frames have come. */
  async heard(count: number): Promise<LiveFrame[]> {
    while (this.frames.length < count) await nextTick();
    return this.frames;
  }

  /** Asks, and waits for an answer of so many snapshots. */
  async ask(count: number): Promise<LiveSnapshot[]> {
    this.snapshots.length = 0;
    this.#bus.ask(this.#turnId);
    while (this.snapshots.length < count) await nextTick();
    return this.snapshots.splice(0);
  }
}
