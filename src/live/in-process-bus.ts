import type { RetryNotice } from '../core/attempts.ts';
import type { LiveBus, LiveFrame, LiveListener, LiveOutput, MessageAttempt, Topic } from './bus.ts';
import { LiveOutputs } from './live-outputs.ts';
import { PublishedMessages } from './published-messages.ts';
import { Listeners } from './listeners.ts';

/** A kernel host has fewer kernels. */
const MAX_OUTPUTS = 1_000;

/** The live bus of a server whose API and worker share a process. */
export class InProcessBus implements LiveBus {
  readonly #published = new PublishedMessages();
  readonly #outputs = new LiveOutputs(MAX_OUTPUTS);
  readonly #listeners = new Listeners<string, LiveListener>();
  readonly #hintListeners = new Listeners<Topic, () => void>();

  publish(frame: LiveFrame): void {
    this.#published.add(frame);
    for (const listener of this.#listeners.of(frame.turnId)) listener.frame(frame);
  }

  announce(notice: RetryNotice): void {
    for (const listener of this.#listeners.of(notice.turnId)) listener.retrying(notice);
  }

  finish(message: Pick<MessageAttempt, 'turnId' | 'messageId' | 'attempt'>): void {
    this.#published.finish(message);
  }

  publishOutput(output: LiveOutput): void {
    this.#outputs.add(output);
    for (const listener of this.#listeners.of(output.turnId)) listener.output(output);
  }

  finishOutput({ id, attempt }: Pick<LiveOutput, 'id' | 'attempt'>): void {
    this.#outputs.delete(id, attempt);
  }

  subscribe(turnId: string, listener: LiveListener): () => void {
    return this.#listeners.add(turnId, listener);
  }

  requestSnapshots(turnId: string): void {
    for (const snapshot of this.#published.on(turnId)) {
      for (const listener of this.#listeners.of(turnId)) listener.snapshot(structuredClone(snapshot));
    }
    for (const output of this.#outputs.on(turnId)) {
      for (const listener of this.#listeners.of(turnId)) listener.output(output);
    }
  }

  hint(topic: Topic): void {
    for (const listener of this.#hintListeners.of(topic)) listener();
  }

  onHint(topic: Topic, listener: () => void): () => void {
    return this.#hintListeners.add(topic, listener);
  }
}
