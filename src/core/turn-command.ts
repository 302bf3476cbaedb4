import type { BudgetAmounts, BudgetReport } from './budget.ts';
import type { DelegationCommand } from './delegations.ts';
import type { Refusal } from './input-rules.ts';
import type { InputItem } from './records/input.ts';
import type { ToolResponse } from './records/results.ts';
import type { ToolkitRefreshed } from './records/turn.ts';
import type { SteerCommand } from './steering.ts';
import type { Caller, Subject } from './subject.ts';
import type { SignInCommand } from './awaited-sign-ins.ts';

/**
 * A command of the API to a running turn. It is a signal of the turn's workflow, so once Temporal has acknowledged it,
 * it is in the history, and becomes records of the log if `TurnActions` accepts it.
 */
export type TurnCommand =
  | AnswerCommand
  | SignInCommand
  | DelegationCommand
  | PauseCommand
  | ForceCommand
  | InterruptCommand
  | SteerCommand;

/** Answers to what the turn waits for: all of them are accepted, or none. */
export interface AnswerCommand extends Answerer {
  type: 'answer';
  /** Minted by the API, which waits for the verdict on it. */
  id: string;
  answers: Answer[];
  refreshes?: ToolkitRefresh[];
  /** When the last question was asked that could be answered: a call may ask again. Milliseconds since 1970. */
  askedUntil?: number;
  /** An equal request came before, which this one repeats. */
  isRepetition?: true;
}

/** A toolkit of the client as it is after a message. */
export type ToolkitRefresh = Pick<ToolkitRefreshed, 'messageId' | 'toolkit' | 'systemPrompt' | 'tools' | 'hash'>;

/**
 * Holds the turn, or lets it continue: no thread of a turn that is held begins a model call or a tool call. What runs
 * ends normally. A repetition changes nothing.
 */
export interface PauseCommand {
  type: 'pause' | 'resume';
  id: string;
  subject: Subject;
  /** Limits of the turn's budget to raise, when it is resumed. */
  budget?: BudgetAmounts;
  /** The budget that the turn shares with others, and that has room again. */
  shared?: BudgetReport;
}

/**
 * All threads answer with their next model calls, which offer no tools. A paused turn is resumed, and waiting calls no
 * longer accept answers.
 */
export interface ForceCommand {
  type: 'force_answer';
  id: string;
  subject: Subject;
}

/** Ends the code of a thread, which runs or waits; the turn continues. Its waiting calls no longer accept answers. */
export interface InterruptCommand {
  type: 'interrupt';
  id: string;
  subject: Subject;
  /** The thread whose model has written the code. */
  threadId: string;
}

/** A caller, with its rights in the session, apart from those that policies give it. */
export interface Answerer extends Caller {
  mayDecide: boolean;
  mayRespond: boolean;
  /** The caller may not read the session: it sees only the calls whose policies name it. */
  isStranger?: true;
}

/** An answer to a pending call; `remembers`: it holds for later calls of the tool in the turn. */
export type Answer =
  | (Extract<InputItem, { type: 'user.tool_approval' }> & { remembers?: true })
  | (Extract<InputItem, { type: 'user.tool_response' }> & ClientResult);

/** The result of a call that its client has sent. */
export interface ClientResult extends Pick<ToolResponse, 'content' | 'files' | 'fullText' | 'error'> {
  /** The tool reports an error. */
  isError?: true;
  /** Equal for equal results: long texts of a command may be references. */
  hash?: string;
}

/** What reaches a turn in the order of its history: commands, and its cancellation, after which it accepts no more. */
export type CommandEvent = TurnCommand | { type: 'cancelled' };

/** The decision of a turn on a command: a refusal, or undefined if it was accepted. */
export type Verdict = Refusal | undefined;
