import { EventEmitter } from 'node:events';
import { applyDelta, emptyText } from '../log/message.ts';
import type { InProgress, LiveBus, LiveFrame, LiveSnapshot } from './bus.ts';

/** The live bus of a server whose API and worker share a process. */
export class InProcessBus implements LiveBus {
  readonly #emitter = new EventEmitter().setMaxListeners(0);
  readonly #inProgress = new Map<string, Map<string, LiveSnapshot>>();

  publish(frame: LiveFrame): void {
    const { n, delta, ...message } = frame;
    const turn = this.#inProgress.get(frame.turnId) ?? new Map<string, LiveSnapshot>();
    this.#inProgress.set(frame.turnId, turn);
    let snapshot = turn.get(frame.messageId);
    if (!snapshot || snapshot.attempt < frame.attempt) {
      snapshot = { ...message, frames: 0, text: emptyText() };
      turn.set(frame.messageId, snapshot);
    }
    // A zombie attempt may still be streaming after its successor has begun; only readers of frames sort that out.
    if (snapshot.attempt === frame.attempt && snapshot.frames === n) {
      applyDelta(snapshot.text, delta);
      snapshot.frames += 1;
    }
    this.#emitter.emit(frame.turnId, frame);
  }

  finish({ turnId, messageId, attempt }: Pick<InProgress, 'turnId' | 'messageId' | 'attempt'>): void {
    const turn = this.#inProgress.get(turnId);
    if (turn?.get(messageId)?.attempt === attempt) turn.delete(messageId);
    if (turn?.size === 0) this.#inProgress.delete(turnId);
  }

  subscribe(turnId: string, onFrame: (frame: LiveFrame) => void): () => void {
    this.#emitter.on(turnId, onFrame);
    return () => this.#emitter.off(turnId, onFrame);
  }

  snapshots(turnId: string): Promise<LiveSnapshot[]> {
    const snapshots = [...(this.#inProgress.get(turnId)?.values() ?? [])];
    return Promise.resolve(structuredClone(snapshots));
  }
}
