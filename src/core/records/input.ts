import type { GivenConversation } from '../given-conversation.ts';
import type { Subject } from '../subject.ts';
import type { Approval } from './pending.ts';

/** A file. A small one is inside the record, a larger one in the blob store under the SHA-256 of its bytes in hex. */
export type StoredFile = {
  type: 'file';
  name: string;
  mimeType: string;
  bytes: number;
  /** The model gets the sound. For other files with audio it only sees that they exist. */
  asAudio?: true;
  /** Where the agent also finds it, from its workspace. */
  workspacePath?: string;
} & ({ base64: string } | { blob: string });

/** What was extracted from a file of the user: the text, as a blob of the session, or why there is none. */
export type FileText = {
  /** Identifies the file, and the type as which it was read: see `extractionKey`. */
  file: string;
} & ({ blob: string } | { problem: string });

export type UserContentPart = { type: 'text'; text: string } | StoredFile;

/** A validated item of a turn's input; files are already in the blob store. */
export type InputItem =
  | { type: 'user.message'; content: string | UserContentPart[] }
  | ({ type: 'user.tool_approval'; threadId: string; toolCallId: string; approval: Approval } & AnsweredBy)
  | ({ type: 'user.tool_response'; threadId: string; toolCallId: string; content: string } & AnsweredBy);

/**
 * The conversation before a turn, if its client keeps it: the turn has no previous one. It is a blob of the session, so
 * that a long one is stored once, and readers of the log do not load it.
 */
export interface ConversationRef {
  /** A `GivenConversation` as JSON. */
  blob: string;
  /** The calls of the conversation that had no result: the model sees that they were cancelled. */
  repaired?: string[];
  /** The conversation, if it was loaded for a model call. Stored records do not have it. */
  given?: GivenConversation;
}

/** An answer that was given before the turn could start has its author, who need not be the creator of the turn. */
interface AnsweredBy {
  by?: Subject;
}
