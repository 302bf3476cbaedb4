import { setImmediate as nextTick } from 'node:timers/promises';
import type { RetryNotice } from '../../src/core/attempts.ts';
import type { LiveBus, LiveFrame, LiveOutput, LiveSnapshot } from '../../src/live/bus.ts';

/** Subscribes to one turn on a bus, for tests that wait until frames or snapshots have arrived. */
export class BusTap {
  readonly frames: LiveFrame[] = [];
  readonly snapshots: LiveSnapshot[] = [];
  readonly outputs: LiveOutput[] = [];
  readonly notices: RetryNotice[] = [];
  lost = 0;
  growths = 0;
  readonly close: () => void;
  readonly #bus: LiveBus;
  readonly #turnId: string;

  constructor(bus: LiveBus, turnId: string) {
    this.#bus = bus;
    this.#turnId = turnId;
    const unsubscribe = bus.subscribe(turnId, {
      frame: (frame) => this.frames.push(frame),
      snapshot: (snapshot) => this.snapshots.push(snapshot),
      retrying: (notice) => this.notices.push(notice),
      output: (output) => this.outputs.push(output),
      lost: () => (this.lost += 1),
    });
    const stopHints = bus.onHint(`growth:${turnId}`, () => (this.growths += 1));
    this.close = () => {
      unsubscribe();
      stopHints();
    };
  }

  /** Waits until `count` frames have arrived. */
  async receiveFrames(count: number): Promise<LiveFrame[]> {
    while (this.frames.length < count) await nextTick();
    return this.frames;
  }

  /** Requests snapshots and waits until `count` of them have arrived. */
  async requestSnapshots(count: number): Promise<LiveSnapshot[]> {
    this.snapshots.length = 0;
    this.#bus.requestSnapshots(this.#turnId);
    while (this.snapshots.length < count) await nextTick();
    return this.snapshots.splice(0);
  }
}
