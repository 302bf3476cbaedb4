import type { StoredFile } from './records/input.ts';
import type { MadeImage } from './records/message.ts';
import type { ToolOutcome } from './records/results.ts';
import type { MessageText } from './message.ts';
import type { TranscriptItem } from './transcript.ts';

/** A conversation that a client keeps, as it gives it to a turn. */
export interface GivenConversation {
  /** What comes before the turn. Each call of a model's message is followed by its result. */
  items: TranscriptItem[];
  /**
   * The last message of the model, if the turn begins with it instead of a model call: its calls without a result are
   * run, or it is the answer. Absent: the conversation ends with a user's message.
   */
  last?: GivenMessage;
}

export interface GivenMessage extends Pick<MessageText, 'content' | 'refusal' | 'reasoning' | 'sections'> {
  toolCalls: GivenCall[];
  /** Given for a registered agent: the roles of the caller, with whose rights the calls run that are not `isMade`. */
  draftRoles?: readonly string[];
  images?: MadeImage[];
  /** The provider and the model that have written the message, if it has fields of theirs. */
  provider?: string;
  model?: string;
  providerFields?: Record<string, unknown>;
}

export interface GivenCall {
  id: string;
  name: string;
  /** JSON, as the model wrote it. */
  arguments: string;
  providerFields?: Record<string, unknown>;
  /** The call has this result, and is not run. */
  result?: GivenResult;
  /** The agent has made the call itself, in another run of the caller. */
  isMade?: true;
}

export interface GivenResult {
  outcome: ToolOutcome;
  content: string;
  files?: StoredFile[];
  /** It is the result that another run has: the client has not given it. */
  isReused?: true;
}
