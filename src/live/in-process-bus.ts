import type { Change } from '../catalog/outbox.ts';
import type { LiveBus, LiveFrame, LiveListener, MessageAttempt } from './bus.ts';
import { PublishedMessages } from './published-messages.ts';
import { Listeners } from './listeners.ts';

/** The live bus of a server whose API and worker share a process. */
export class InProcessBus implements LiveBus {
  readonly #published = new PublishedMessages();
  readonly #cancelListeners = new Listeners<() => void>();
  readonly #sessionListeners = new Listeners<() => void>();
  readonly #listeners = new Listeners<LiveListener>();
  readonly #changeListeners = new Listeners<() => void>();

  publish(frame: LiveFrame): void {
    this.#published.add(frame);
    for (const listener of this.#listeners.of(frame.turnId)) listener.frame(frame);
  }

  finish(message: Pick<MessageAttempt, 'turnId' | 'messageId' | 'attempt'>): void {
    this.#published.finish(message);
  }

  subscribe(turnId: string, listener: LiveListener): () => void {
    return this.#listeners.add(turnId, listener);
  }

  requestSnapshots(turnId: string): void {
    for (const snapshot of this.#published.on(turnId)) {
      for (const listener of this.#listeners.of(turnId)) listener.snapshot(structuredClone(snapshot));
    }
  }

  hintGrowth(turnId: string): void {
    for (const listener of this.#listeners.of(turnId)) listener.grows();
  }

  hintCancel(turnId: string): void {
    for (const listener of this.#cancelListeners.of(turnId)) listener();
  }

  onCancelHint(turnId: string, listener: () => void): () => void {
    return this.#cancelListeners.add(turnId, listener);
  }

  hintSession(sessionId: string): void {
    for (const listener of this.#sessionListeners.of(sessionId)) listener();
  }

  onSessionHint(sessionId: string, listener: () => void): () => void {
    return this.#sessionListeners.add(sessionId, listener);
  }

  hintChange(change: Change): void {
    for (const listener of this.#changeListeners.of(change)) listener();
  }

  onChangeHint(change: Change, listener: () => void): () => void {
    return this.#changeListeners.add(change, listener);
  }
}
