import { applyDelta, emptyText, type MessageDelta, type MessageText } from '../log/message.ts';
import type { LiveFrame, LiveSnapshot } from './bus.ts';

/** A message in progress as far as this process knows it. */
export interface LiveMessage {
  id: string;
  threadId: string;
  at: string;
  after: number;
  attempt: number;
  /** How many frames of the attempt `text` contains. */
  frames: number;
  text: MessageText;
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
 */
export class LiveMessages {
  readonly #messages = new Map<string, LiveMessage>();
  readonly #settled = new Set<string>();

  /** In the order in which they began. */
  get all(): Iterable<LiveMessage> {
    return this.#messages.values();
  }

  get(messageId: string): LiveMessage | undefined {
    return this.#messages.get(messageId);
  }

  frame(frame: LiveFrame): LiveChange {
    if (this.#settled.has(frame.messageId)) return NONE;
    const known = this.#messages.get(frame.messageId);
    if (known && frame.attempt < known.attempt) return NONE;
    const message = known?.attempt === frame.attempt ? known : this.#begin(frame);
    if (frame.n < message.frames) return NONE;
    if (frame.n > message.frames) return { type: 'gap' };
    applyDelta(message.text, frame.delta);
    message.frames += 1;
    return { type: 'grown', message, delta: frame.delta };
  }

  snapshot(snapshot: LiveSnapshot): LiveChange {
    if (this.#settled.has(snapshot.messageId)) return NONE;
    const known = this.#messages.get(snapshot.messageId);
    if (known && snapshot.attempt < known.attempt) return NONE;
    if (known?.attempt === snapshot.attempt && snapshot.frames <= known.frames) return NONE;
    const message = this.#begin(snapshot);
    message.frames = snapshot.frames;
    message.text = snapshot.text;
    return { type: 'grown', message };
  }

  /** The message is in the log now: whatever the bus still says of it is old. */
  settle(messageId: string): void {
    this.#messages.delete(messageId);
    this.#settled.add(messageId);
  }

  #begin({ messageId: id, threadId, createdAt: at, after, attempt }: LiveFrame | LiveSnapshot): LiveMessage {
    const message = { id, threadId, at, after, attempt, frames: 0, text: emptyText() };
    this.#messages.set(id, message);
    return message;
  }
}
