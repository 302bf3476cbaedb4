import type { ToolCall } from './records/calls.ts';
import type { ModelMessage } from './records/message.ts';
import type { ToolResponse } from './records/results.ts';
import type { MessageText } from './message.ts';
import type { TranscriptItem } from './transcript.ts';

/** A conversation that a client keeps, as it gives it to a turn. */
export interface GivenConversation {
  /** What comes before the turn. Each call of a model's message is followed by its result. */
  items: TranscriptItem[];
  /**
   * The last message of the model, if the turn begins with it instead of a model call: its calls without a result are
   * run, or it is the turn's output. Absent: the conversation ends with a user's message.
   */
  last?: GivenMessage;
}

/** Provider and model are set if the message has fields of theirs. */
export interface GivenMessage
  extends
    Pick<MessageText, 'content' | 'refusal' | 'reasoning' | 'sections'>,
    Pick<ModelMessage, 'images' | 'provider' | 'model' | 'providerFields'> {
  toolCalls: GivenCall[];
  /** Set for a registered agent: the roles of the caller, with whose rights the calls run that are not `isMade`. */
  draftRoles?: readonly string[];
}

export interface GivenCall extends Omit<ToolCall, 'info' | 'route'> {
  /** The call has this result, and is not run. */
  result?: GivenResult;
  /** The agent has made the call itself, in another run of the caller. */
  isMade?: true;
}

export type GivenResult = Pick<ToolResponse, 'outcome' | 'content' | 'files' | 'isReused'>;
