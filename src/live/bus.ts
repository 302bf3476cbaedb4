import type { MessageDelta, MessageText } from '../core/message.ts';

/** A model message in progress, as one attempt of its model call produces it. */
export interface InProgress {
  turnId: string;
  threadId: string;
  messageId: string;
  /** `created_at` of the message. */
  createdAt: string;
  /** The ordinal up to which the model call reads the log: the message comes after it. */
  after: number;
  attempt: number;
}

/** One chunk of a message. `n` counts an attempt's frames from 0, without gaps. */
export interface LiveFrame extends InProgress {
  n: number;
  delta: MessageDelta;
}

/** All that an attempt has produced so far: the fold of its first `frames` frames. */
export interface LiveSnapshot extends InProgress {
  frames: number;
  text: MessageText;
}

/**
 * A message that is longer than this many characters is live up to here: its readers get the rest with the log. It bounds
 * what a message in progress takes in each process that writes or watches it, and how long a snapshot is.
 */
export const MAX_LIVE_CHARACTERS = 4 * 1024 * 1024;

/** Somebody who watches a turn. */
export interface LiveListener {
  frame: (frame: LiveFrame) => void;
  /** An answer to `ask`, maybe to somebody else's. */
  snapshot: (snapshot: LiveSnapshot) => void;
  /** Frames may have been lost, and perhaps none follows that would show it. */
  lost: () => void;
}

/**
 * The live bus: a view of work in progress, from the workers to whoever watches. It is lossy by contract: frames may
 * be dropped, doubled or reordered, and a snapshot may be older than the frames around it. Whoever reads it must end up
 * with the same text all the same, from the log.
 */
export interface LiveBus {
  /** Never throws and never waits: a model call does not depend on its spectators. */
  publish(frame: LiveFrame): void;
  /** Forgets a message: this attempt at it has ended, and the log has the rest. A later attempt is not concerned. */
  finish(message: Pick<InProgress, 'turnId' | 'messageId' | 'attempt'>): void;
  /** What comes of a turn from now on; returns the unsubscribe function. */
  subscribe(turnId: string, listener: LiveListener): () => void;
  /**
   * Has snapshots of all that is in progress on a turn sent to its listeners, for readers that come late or have missed
   * a frame. Never throws and never waits; there may be no answer.
   */
  ask(turnId: string): void;
}
