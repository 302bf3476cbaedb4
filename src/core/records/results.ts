import type { Subject } from '../subject.ts';
import type { RecordBase } from './base.ts';
import type { StoredFile } from './input.ts';
import type { Execution, SavedFiles } from './sandbox.ts';

/** How a tool call ended. Every call ends in exactly one of these. */
export type ToolOutcome = 'succeeded' | 'failed' | 'denied' | 'expired' | 'cancelled' | 'unknown_outcome';

/** A result that is too long for its record: a blob of the session. */
export interface FullText {
  name: string;
  mimeType: string;
  bytes: number;
  characters: number;
  blob: string;
  sessionId: string;
}

export interface ToolResponse extends RecordBase {
  kind: 'tool.response';
  threadId: string;
  toolCallId: string;
  outcome: ToolOutcome;
  /** The arguments with which the call ran, if a person has edited those of the model: a JSON object. */
  arguments?: string;
  /**
   * The result as text, at most `MAX_RESULT_BYTES`; a longer one is cut, and `fullText` has all of it. For a denied
   * call the reason, if there is one. `responseText` turns it into the text for model and client.
   */
  content: string;
  /** Images and other binary results. */
  files?: StoredFile[];
  /** The whole text, if `content` was cut. */
  fullText?: FullText;
  /** What an MCP server has returned as structured content, as JSON, if the text does not have all of it. */
  structuredContent?: StoredFile;
  /** For a search for tools: the tools that are offered to the model from now on. */
  foundTools?: FoundTool[];
  /** Who has given the result, in a turn that waited for it. */
  by?: Subject;
  /** The thread of the sub-agent that has produced the result. Only the model reads it here. */
  fromThread?: string;
  /** The result was given with the conversation before the turn. */
  isGiven?: true;
  /** A given result that the client has not sent: it is from another run of the Runs API. */
  isReused?: true;
  /** Why the call has no result of its tool, unless its outcome says that. Absent: it has one, or was not to be run. */
  noResult?: NoResult;
  /** The message of the error that the client's tool has thrown, which the model is not shown. */
  error?: string;
  /** The hash of the client's answer, by which a repetition of it is recognized. */
  answerHash?: string;
  /** The connection on which it ran, if its server keeps state for connections. */
  connection?: StatefulConnection;
  /** It was denied by a rule or a policy: no person has decided. */
  byRule?: true;
  /** How it ran, if it ran in the sandbox of the session. */
  execution?: Execution;
  /** The files of the workspace that it has made, for clients. */
  saved?: SavedFiles;
}

/** A connection for which its server keeps state, which only calls on the same connection can use. */
export interface StatefulConnection {
  serverId: string;
  /** Unique for each connection that was ever opened. */
  id: string;
}

/**
 * Why a call has no result of its tool.
 * - `unknown_tool`: there is no tool of its name.
 * - `unreachable`: its server could not be reached.
 * - `protocol`: the response of its server violates MCP, or is a protocol error.
 * - `client`: its client reports that the tool threw an error.
 */
export type NoResult = 'unknown_tool' | 'unreachable' | 'protocol' | 'client';

/** A tool, identified independently of changes to its agent: names of servers are unique in an agent. */
export interface FoundTool {
  server: string;
  name: string;
}
