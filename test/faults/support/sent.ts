import type { OnRunning } from '../../../src/core/session.ts';
import type { Answer } from '../../support/api-client.ts';
import type { Subject } from './subjects.ts';

/** An input as it was sent, and its outcome as far as the sender has it. */
export interface SentInput {
  sessionId: string;
  input: Record<string, unknown>[];
  outcome: 'under way' | 'accepted' | 'refused';
  /** What it asked for if another turn runs; by default that is cancelled. */
  onRunning?: OnRunning;
  turnId?: string;
  /** The responses by which the server reported that it is temporarily unable. */
  unavailable?: Answer[];
  /** When it was first sent, on the clock of the recorded frames. */
  at: number;
  /** The error code of a rejection. */
  status?: number;
  code?: string;
}

/** A decision on a call of a turn that waits, as it was sent. */
export interface SentDecision {
  sessionId: string;
  toolCallId: string;
  /** By default that of the agent itself. */
  threadId?: string;
  status: 'allow' | 'deny';
  /** The edited arguments of the call. */
  edited?: object;
  by: Subject;
  /** When it was first sent, on the clock of the recorded frames. */
  at: number;
  /** The status of the response, once there is one. */
  response?: number;
}

/** A decision on a call of a run, as it was sent. */
export interface SentRunDecision extends Pick<SentDecision, 'toolCallId' | 'status' | 'at' | 'response'> {
  /** It holds for later calls of the tool. */
  remember: boolean;
}

/** An answer to a client's tool, or to a tool that asks, in a turn that waits. */
export interface SentResponse {
  sessionId: string;
  item: Record<string, unknown>;
  /** The status of the response, once there is one. */
  response?: number;
}

/** A message for the running turn of a session, as it was sent. */
export interface SentMessage {
  sessionId: string;
  /** Unique. */
  text: string;
  /** The turn that the response named, once there is one. */
  turnId?: string;
}

/** A command to the running turn of a session, as it was sent. */
export interface SentControl {
  sessionId: string;
  command: 'pause' | 'resume' | 'force_answer';
  /** The turn that ran as far as the sender knew. */
  turnId: string | undefined;
  /** The status of the response, and its time on the clock of the recorded frames, once there is one. */
  response?: number;
  answeredAt?: number;
}
