/**
 * Sequence numbers: `ordinal * 1,000,000 + frame`. The ordinal counts the durable events of a turn; the frame counts
 * the events that were sent on a connection since the last durable one. A durable event has frame 0, so a sequence
 * number shows which durable events its reader has. No other part of it is trusted, except for the frames of pieces.
 */
export const FRAMES_PER_ORDINAL = 1_000_000;

/**
 * The first frame that numbers a piece of the durable message at the next ordinal, for a reader that was disconnected
 * within that message; connections count only the frames below. The pieces of a durable message never change, so such a
 * number means the same on every node, and a reader that reconnects within a message continues after the pieces that it
 * has. The frames below are more than any message needs, however often its reader reconnects; live text stops there.
 */
export const FIRST_PIECE = 900_000;
const MAX_CURSOR_FRAME = 990_000;

export interface Cursor {
  /** The last durable event that the reader has; 0 for none. */
  ordinal: number;
  frame: number;
}

export const BEGINNING: Cursor = { ordinal: 0, frame: 0 };

export function sequenceNumber({ ordinal, frame }: Cursor): number {
  return ordinal * FRAMES_PER_ORDINAL + frame;
}

/** Undefined if `sequence` is not a number that a stream can have sent (or 0, the beginning). */
export function parseCursor(sequence: number): Cursor | undefined {
  if (!Number.isSafeInteger(sequence) || sequence < 0) return undefined;
  const cursor = { ordinal: Math.floor(sequence / FRAMES_PER_ORDINAL), frame: sequence % FRAMES_PER_ORDINAL };
  return cursor.frame <= MAX_CURSOR_FRAME ? cursor : undefined;
}
