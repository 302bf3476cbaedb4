import type { RetryNotice } from '../core/attempts.ts';
import type { Change } from '../catalog/outbox.ts';
import type { MessageDelta, MessageText } from '../core/message.ts';
import type { OutputPart } from '../core/output-parts.ts';
import type { McpInitialized } from '../core/records/servers.ts';

/** One attempt of a model call at a message. */
export interface MessageAttempt {
  turnId: string;
  threadId: string;
  messageId: string;
  /** `created_at` of the message. */
  createdAt: string;
  /** The ordinal up to which the model call reads the log: the message comes after it. */
  after: number;
  /** Counted from 0: the speculative call of a turn; the attempts of the activity follow. */
  attempt: number;
  /**
   * The record of the log between the one at `after` and the message, if there is one. A stream has the order of the
   * log, so readers are sent it before the message. Frames after an attempt's first do not repeat it.
   */
  preceding?: McpInitialized;
}

/** One chunk of a message. `n` counts an attempt's frames from 0, without gaps. */
export interface LiveFrame extends MessageAttempt {
  n: number;
  delta: MessageDelta;
}

/** The text that an attempt has produced so far: the fold of its first `frames` frames. */
export interface LiveSnapshot extends MessageAttempt {
  frames: number;
  text: MessageText;
}

/**
 * A message is live up to this many characters; its readers get the rest with the log. This bounds the memory of a
 * message in progress in each process that writes or follows it, and the length of a snapshot.
 */
export const MAX_LIVE_CHARACTERS = 4 * 1024 * 1024;

/** A piece of the output of a call in the sandbox, which has not ended. */
export interface LiveOutput {
  turnId: string;
  threadId: string;
  toolCallId: string;
  /** The id of the result that the call is to have: see `resultId`. */
  id: string;
  /** The ordinal up to which the log was read when the code began: its output comes after that. */
  after: number;
  /** When the code began, in milliseconds since 1970. A later attempt supersedes the output of those before. */
  attempt: number;
  /** The length of the output before this piece, in characters. */
  from: number;
  /** Adjacent parts are of different channels. */
  parts: OutputPart[];
}

/** The same for the output of a call, which hosts bound further: the result of a cell has at most 256 KiB. */
export const MAX_OUTPUT_CHARACTERS = 512 * 1024;

/** Each change of the channel begins a part, which takes more memory than its text. */
export const MAX_OUTPUT_PARTS = 2_000;

/** The callbacks of a subscription to a turn. */
export interface LiveListener {
  frame: (frame: LiveFrame) => void;
  retrying: (notice: RetryNotice) => void;
  /** Also a snapshot that another process has requested. */
  snapshot: (snapshot: LiveSnapshot) => void;
  /** Also a whole output that another process has requested. */
  output: (output: LiveOutput) => void;
  /** Frames may have been lost, and possibly no later frame shows the gap. */
  lost: () => void;
}

/**
 * What a hint is about:
 * - `growth:<turn id>`, for readers that have subscribed to the turn: its log is about to grow, since an activity returns
 *   its result, a command was recorded, or the turn ends
 * - `cancel:<turn id>`, for workers: the turn cancels its activities; the hint may arrive before the cancel is recorded
 * - `command:<turn id>`, for workers: a command has changed the next step of the turn, which may be paused
 * - `session:<session id>`, for readers: the session has a new turn, or was deleted
 * - `change:<change>`, for all processes: the catalog has a change, which they would otherwise find by polling
 */
export type Topic =
  | `growth:${string}`
  | `cancel:${string}`
  | `command:${string}`
  | `session:${string}`
  | `change:${Change}`;

/**
 * The live bus carries text in progress from workers and kernel hosts to a turn's readers, and hints between processes.
 * It is lossy by contract: frames and hints may be dropped, duplicated or reordered, and a snapshot may be older than the
 * frames around it. The log is durable: a reader must have its text at the end even if the bus delivers nothing.
 */
export interface LiveBus {
  /** Never throws and never waits: a model call does not depend on its readers. */
  publish(frame: LiveFrame): void;
  /** Notifies the readers of a turn that it repeats a call. Never throws and never waits. */
  announce(notice: RetryNotice): void;
  /** Drops the text of a message: this attempt has ended, and the log has its result. Later attempts are kept. */
  finish(message: Pick<MessageAttempt, 'turnId' | 'messageId' | 'attempt'>): void;
  /** Never throws and never waits, like `publish`. */
  publishOutput(output: LiveOutput): void;
  /** Drops the output of a call: this attempt has ended. */
  finishOutput(output: Pick<LiveOutput, 'turnId' | 'id' | 'attempt'>): void;
  /** Delivers the frames of a turn from now on; returns the unsubscribe function. */
  subscribe(turnId: string, listener: LiveListener): () => void;
  /**
   * Has snapshots of all messages and outputs in progress on a turn sent to its listeners, for readers that join late or
   * have missed a frame. Never throws and never waits; snapshots may not arrive.
   */
  requestSnapshots(turnId: string): void;
  /**
   * Notifies the listeners of a topic, in all processes; those of this process once, before it returns: a later echo
   * would stop work that has begun since. Never throws and never waits.
   */
  hint(topic: Topic): void;
  /** Delivers the hints of a topic from now on, also those of this process; returns the unsubscribe function. */
  onHint(topic: Topic, listener: () => void): () => void;
}
