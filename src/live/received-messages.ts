import { applyDelta, charactersOf, emptyText, type MessageDelta, type MessageText } from '../core/message.ts';
import type { ModelMessage } from '../core/records.ts';
import { MAX_LIVE_CHARACTERS, type LiveFrame, type LiveSnapshot } from './bus.ts';

/** A message in progress as far as this process knows it. */
export interface LiveMessage {
  id: string;
  threadId: string;
  at: string;
  after: number;
  attempt: number;
  /** How many frames of the attempt `text` contains; infinite if it takes no more. */
  frames: number;
  text: MessageText;
  /** About what `text` takes. */
  characters: number;
}

export type LiveChange =
  | { type: 'none' }
  /** A frame is missing: the message stays as it is until a snapshot, or the log, has what is missing. */
  | { type: 'gap' }
  /** `delta` was folded into the message; absent if the message was replaced by a snapshot. */
  | { type: 'grown'; message: LiveMessage; delta?: MessageDelta };

const NONE: LiveChange = { type: 'none' };

/**
 * The messages in progress on one turn: the fold of what a lossy bus delivers. Frames may be lost, doubled or
 * reordered and attempts may overlap; what stands here is always a prefix of what the latest attempt has said.
 *
 * A frozen worker that wakes up may send frames of a message that is long durable. Each message says up to where its
 * model call has read the log, so what was begun before the last message of its thread is over.
 */
export class ReceivedMessages {
  readonly #messages = new Map<string, LiveMessage>();
  /** Nothing that has read less of the log is in progress, in any thread... */
  #begin = 0;
  /** ... or in this one: the ordinal of its last message. */
  readonly #last = new Map<string, number>();
  #characters = 0;

  /** In the order in which they began. */
  get all(): Iterable<LiveMessage> {
    return this.#messages.values();
  }

  /** About what all texts take. */
  get characters(): number {
    return this.#characters;
  }

  get(messageId: string): LiveMessage | undefined {
    return this.#messages.get(messageId);
  }

  /** The log up to `ordinal` was closed when the turn's run began, so nothing that is in progress has read less. */
  beginAfter(ordinal: number): void {
    this.#begin = ordinal;
    for (const message of this.#messages.values()) if (this.#isOver(message)) this.#remove(message.id);
  }

  frame(frame: LiveFrame): LiveChange {
    if (this.#isOver(frame)) return NONE;
    const known = this.#messages.get(frame.messageId);
    if (known && frame.attempt < known.attempt) return NONE;
    const message = known?.attempt === frame.attempt ? known : this.#add(frame);
    if (frame.n < message.frames) return NONE;
    if (frame.n > message.frames) return { type: 'gap' };
    applyDelta(message.text, frame.delta);
    message.frames += 1;
    this.#grow(message, charactersOf(frame.delta));
    return { type: 'grown', message, delta: frame.delta };
  }

  snapshot(snapshot: LiveSnapshot): LiveChange {
    if (this.#isOver(snapshot)) return NONE;
    const known = this.#messages.get(snapshot.messageId);
    if (known && snapshot.attempt < known.attempt) return NONE;
    if (known?.attempt === snapshot.attempt && snapshot.frames <= known.frames) return NONE;
    const message = this.#add(snapshot);
    message.frames = snapshot.frames;
    message.text = snapshot.text;
    this.#grow(message, charactersOf(snapshot.text));
    return { type: 'grown', message };
  }

  /** The message is in the log now: whatever the bus still says of it is old. */
  settle({ id, threadId }: Pick<ModelMessage, 'id' | 'threadId'>, ordinal: number): void {
    this.#remove(id);
    this.#last.set(threadId, ordinal);
  }

  /** The messages stay as they are: their readers get the rest from the log. */
  freeze(): void {
    for (const message of this.#messages.values()) message.frames = Infinity;
  }

  #isOver({ threadId, after }: Pick<LiveMessage, 'threadId' | 'after'>): boolean {
    return after < this.#begin || after < (this.#last.get(threadId) ?? 0);
  }

  #grow(message: LiveMessage, characters: number): void {
    message.characters += characters;
    this.#characters += characters;
    if (message.characters > MAX_LIVE_CHARACTERS) message.frames = Infinity;
  }

  #add({ messageId: id, threadId, createdAt: at, after, attempt }: LiveFrame | LiveSnapshot): LiveMessage {
    this.#characters -= this.#messages.get(id)?.characters ?? 0;
    const message = { id, threadId, at, after, attempt, frames: 0, text: emptyText(), characters: 0 };
    this.#messages.set(id, message);
    return message;
  }

  #remove(id: string): void {
    this.#characters -= this.#messages.get(id)?.characters ?? 0;
    this.#messages.delete(id);
  }
}
