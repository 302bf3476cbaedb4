import { applyDelta, charactersOf, emptyText, type MessageDelta } from '../core/message.ts';
import type { ModelMessage } from '../core/records/message.ts';
import type { McpInitialized } from '../core/records/servers.ts';
import { MAX_LIVE_CHARACTERS, type LiveFrame, type LiveSnapshot } from './bus.ts';

/** A message in progress, as far as this process has received it. */
export interface LiveMessage extends Omit<LiveSnapshot, 'turnId' | 'messageId' | 'createdAt'> {
  id: string;
  at: string;
  /** Absent if its frame has not arrived. */
  preceding?: McpInitialized;
  /** How many frames of the attempt `text` contains; infinite if it accepts no more. */
  frames: number;
  /** Approximate length of `text`. */
  characters: number;
}

export type LiveChange =
  | { type: 'none' }
  /** A frame is missing: the message stays as it is until a snapshot or the log brings the missing text. */
  | { type: 'gap' }
  /** `delta` was folded into the message; absent if the message was replaced by a snapshot. */
  | { type: 'grown'; message: LiveMessage; delta?: MessageDelta };

const NONE: LiveChange = { type: 'none' };

/**
 * The messages in progress on one turn: the fold of what a lossy bus delivers. Frames may be lost, duplicated or
 * reordered and attempts may overlap; each message here is always a prefix of the latest attempt's text.
 *
 * A frozen worker that resumes may send frames of a message that has been durable for long. Each message names the
 * ordinal up to which its model call has read the log, so a message that was started before the last message of its
 * thread is discarded.
 */
export class ReceivedMessages {
  readonly #messages = new Map<string, LiveMessage>();
  /** A message whose model call has read less of the log is not in progress, in any thread. */
  #minAfter = 0;
  /** The same for one thread: the ordinal of its last message. */
  readonly #lastOrdinals = new Map<string, number>();
  #characters = 0;

  /** In the order in which they were started. */
  get all(): Iterable<LiveMessage> {
    return this.#messages.values();
  }

  /** Approximate length of all texts. */
  get characters(): number {
    return this.#characters;
  }

  get(messageId: string): LiveMessage | undefined {
    return this.#messages.get(messageId);
  }

  /** Discards messages from before the turn's current run, which has started with the log up to `ordinal`. */
  startAfter(ordinal: number): void {
    this.#minAfter = ordinal;
    for (const message of this.#messages.values()) if (this.#isStale(message)) this.#remove(message.id);
  }

  frame(frame: LiveFrame): LiveChange {
    if (this.#isStale(frame)) return NONE;
    const known = this.#messages.get(frame.messageId);
    if (known && frame.attempt < known.attempt) return NONE;
    const message = known?.attempt === frame.attempt ? known : this.#add(frame);
    if (frame.n < message.frames) return NONE;
    if (frame.n > message.frames) return { type: 'gap' };
    if (frame.preceding) message.preceding = frame.preceding;
    applyDelta(message.text, frame.delta);
    message.frames += 1;
    this.#grow(message, charactersOf(frame.delta));
    return { type: 'grown', message, delta: frame.delta };
  }

  snapshot(snapshot: LiveSnapshot): LiveChange {
    if (this.#isStale(snapshot)) return NONE;
    const known = this.#messages.get(snapshot.messageId);
    if (known && snapshot.attempt < known.attempt) return NONE;
    if (known?.attempt === snapshot.attempt && snapshot.frames <= known.frames) return NONE;
    const message = this.#add(snapshot);
    message.frames = snapshot.frames;
    message.text = snapshot.text;
    this.#grow(message, charactersOf(snapshot.text));
    return { type: 'grown', message };
  }

  /** The message is durable: later frames of it are ignored. */
  settle({ id, threadId }: Pick<ModelMessage, 'id' | 'threadId'>, ordinal: number): void {
    this.#remove(id);
    this.#lastOrdinals.set(threadId, ordinal);
  }

  /** Stops the growth of all messages: their readers get the rest from the log. */
  freeze(): void {
    for (const message of this.#messages.values()) message.frames = Infinity;
  }

  #isStale({ threadId, after }: Pick<LiveMessage, 'threadId' | 'after'>): boolean {
    return after < this.#minAfter || after < (this.#lastOrdinals.get(threadId) ?? 0);
  }

  #grow(message: LiveMessage, characters: number): void {
    message.characters += characters;
    this.#characters += characters;
    if (message.characters > MAX_LIVE_CHARACTERS) message.frames = Infinity;
  }

  #add({ messageId: id, threadId, createdAt: at, after, attempt, preceding }: LiveFrame | LiveSnapshot): LiveMessage {
    this.#characters -= this.#messages.get(id)?.characters ?? 0;
    const known = { id, threadId, at, after, attempt, ...(preceding && { preceding }) };
    const message: LiveMessage = { ...known, frames: 0, text: emptyText(), characters: 0 };
    this.#messages.set(id, message);
    return message;
  }

  #remove(id: string): void {
    this.#characters -= this.#messages.get(id)?.characters ?? 0;
    this.#messages.delete(id);
  }
}
