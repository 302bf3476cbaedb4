import { CancelHints } from './cancel-hints.ts';
import type { LiveBus, LiveFrame, LiveListener, MessageAttempt } from './bus.ts';
import { PublishedMessages } from './published-messages.ts';

/** The live bus of a server whose API and worker share a process. */
export class InProcessBus implements LiveBus {
  readonly #published = new PublishedMessages();
  readonly #cancelHints = new CancelHints();
  readonly #listeners = new Map<string, Set<LiveListener>>();

  publish(frame: LiveFrame): void {
    this.#published.add(frame);
    for (const listener of this.#listeners.get(frame.turnId) ?? []) listener.frame(frame);
  }

  finish(message: Pick<MessageAttempt, 'turnId' | 'messageId' | 'attempt'>): void {
    this.#published.finish(message);
  }

  subscribe(turnId: string, listener: LiveListener): () => void {
    const listeners = this.#listeners.get(turnId) ?? new Set();
    this.#listeners.set(turnId, listeners.add(listener));
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.#listeners.get(turnId) === listeners) this.#listeners.delete(turnId);
    };
  }

  requestSnapshots(turnId: string): void {
    for (const snapshot of this.#published.on(turnId)) {
      for (const listener of this.#listeners.get(turnId) ?? []) listener.snapshot(structuredClone(snapshot));
    }
  }

  hintCancel(turnId: string): void {
    this.#cancelHints.deliver(turnId);
  }

  onCancelHint(turnId: string, listener: () => void): () => void {
    return this.#cancelHints.on(turnId, listener);
  }
}
