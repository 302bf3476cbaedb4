import { applyDelta, emptyText } from '../log/message.ts';
import type { InProgress, LiveFrame, LiveSnapshot } from './bus.ts';

/** The messages that this process is writing, each folded as far as it has come: what snapshots are made of. */
export class MessagesInProgress {
  readonly #turns = new Map<string, Map<string, LiveSnapshot>>();

  /** The turns with a message in progress. */
  get turnIds(): Iterable<string> {
    return this.#turns.keys();
  }

  has(turnId: string): boolean {
    return this.#turns.has(turnId);
  }

  add(frame: LiveFrame): void {
    const { n, delta, ...message } = frame;
    const turn = this.#turns.get(frame.turnId) ?? new Map<string, LiveSnapshot>();
    this.#turns.set(frame.turnId, turn);
    let snapshot = turn.get(frame.messageId);
    if (!snapshot || snapshot.attempt < frame.attempt) {
      snapshot = { ...message, frames: 0, text: emptyText() };
      turn.set(frame.messageId, snapshot);
    }
    // A zombie attempt may still be streaming after its successor has begun; only readers of frames sort that out.
    if (snapshot.attempt !== frame.attempt || snapshot.frames !== n) return;
    applyDelta(snapshot.text, delta);
    snapshot.frames += 1;
  }

  finish({ turnId, messageId, attempt }: Pick<InProgress, 'turnId' | 'messageId' | 'attempt'>): void {
    const turn = this.#turns.get(turnId);
    if (turn?.get(messageId)?.attempt === attempt) turn.delete(messageId);
    if (turn?.size === 0) this.#turns.delete(turnId);
  }

  /** The messages in progress on a turn. They grow: who keeps one copies it. */
  on(turnId: string): LiveSnapshot[] {
    return [...(this.#turns.get(turnId)?.values() ?? [])];
  }
}
