import type { ToolScope, TurnHeader } from '../core/history.ts';
import type { InputItem } from '../core/records/input.ts';
import type { TurnAccepted } from '../core/session.ts';
import type { TraceContext } from '../core/trace-context.ts';

/**
 * Speculative calls as the engine sees them: the first model call of a turn may start before the turn's session has
 * accepted it. `src/features/speculation` implements them.
 */

/** A validated turn that is about to be requested from its session: everything that its first model call depends on. */
export interface SpeculativeCall extends TurnHeader, ToolScope {
  /** The session's newest turn, on any branch. If it is running, it has to end first. */
  after: string | null;
  /** The turn's position in the session, unless another turn is accepted first. */
  sequence: number;
  /** The request's position in a trace, if it is part of one. */
  trace?: TraceContext;
}

/** What a turn is expected to start with, except for its input. */
export type ExpectedTurn = Omit<SpeculativeCall, 'input' | 'trace'>;

/** The speculative call of one request: offered once, as early as possible, and withdrawn if there is no turn. */
export interface Speculation {
  /** Without an expected turn nothing is offered. */
  expect(turn: ExpectedTurn): void;
  /** The session will most likely accept a turn with this input: the model call may start. */
  offer(input: InputItem[]): void;
  /** The request has claimed what it creates. */
  claimed(): void;
  /** The session has accepted the turn: the call's message is shown to readers. An offer would come too late. */
  accepted(turn: TurnAccepted): void;
  /** There will be no such turn. Without effect once the session has accepted it. */
  withdraw(): void;
}

export interface Speculator {
  /**
   * Reserves the speculative call of a scope (a caller's requests on one session) until it is accepted or withdrawn.
   * Undefined if another request of the scope has reserved it, or no worker runs in this process.
   */
  reserve(scope: string): Speculation | undefined;
  /**
   * Settles when the request with the scope's reservation has claimed what it creates. The scope's other requests claim
   * after it: if an equal request claimed first, the speculative call would be for a turn that never exists.
   */
  whenClaimed(scope: string): Promise<void>;
}
