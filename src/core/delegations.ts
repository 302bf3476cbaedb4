import type { WithoutId } from './records/base.ts';
import type { ToolResponse } from './records/results.ts';
import { callKey, type CallKey } from './tool-records.ts';

/** A call that is delegated to another agent, in a session of its own. */
export interface DelegatedCall extends CallKey {
  sessionId: string;
}

/** How the work of another agent has ended, in the form of the record; its texts may be references. */
export type DelegationResult = Pick<ToolResponse, 'content' | 'fullText'> & {
  outcome: 'succeeded' | 'failed' | 'cancelled';
};

/** The turn of the agent that works on a call has ended. A repeated command changes nothing. */
export interface DelegationCommand extends DelegatedCall {
  type: 'delegation';
  id: string;
  result: DelegationResult;
}

interface Delegation extends DelegatedCall {
  /** The session exists, and has its task. */
  isStarted: boolean;
  /** Set if it has arrived, and is not in the log yet. */
  result?: DelegationResult;
}

/** What a run of a turn passes on when it continues as new. */
type State = Delegation[];

/** The calls of a turn that are delegated to other agents, in sessions of their own, until they have results. */
export class OpenDelegations {
  readonly #open: Map<string, Delegation>;

  constructor(state: State = []) {
    this.#open = new Map(state.map((one) => [callKey(one), { ...one }]));
  }

  get state(): State {
    return [...this.#open.values()];
  }

  /** The calls on which the other agents work. */
  get started(): DelegatedCall[] {
    return this.state.filter(({ isStarted }) => isStarted);
  }

  /** Whether the end of a task records results. */
  get mustRecord(): boolean {
    return this.state.some(hasResult);
  }

  /** The server is about to create the session of a call. */
  add(call: DelegatedCall): void {
    this.#open.set(callKey(call), { ...call, isStarted: false });
  }

  /** Notes that the session of a call has its task. Returns false if the call is not, or no longer, delegated. */
  start(key: CallKey): boolean {
    const delegation = this.#open.get(callKey(key));
    if (delegation) delegation.isStarted = true;
    return delegation !== undefined;
  }

  /**
   * The first result counts. It may arrive before the activity that creates the session has ended, and is recorded
   * after that end: if the activity fails, its failure is the outcome of the call.
   */
  end({ sessionId, result, ...key }: DelegationCommand): void {
    const delegation = this.#open.get(callKey(key));
    if (delegation?.sessionId === sessionId) delegation.result ??= result;
  }

  /** The records of the results. */
  record(at: string): WithoutId<ToolResponse>[] {
    return this.state.filter(hasResult).map(({ threadId, toolCallId, result }) => {
      return { kind: 'tool.response', at, threadId, toolCallId, ...result };
    });
  }

  /** The call has a result in the log. */
  ended(key: CallKey): void {
    this.#open.delete(callKey(key));
  }
}

function hasResult(delegation: Delegation): delegation is Delegation & { result: DelegationResult } {
  return delegation.isStarted && delegation.result !== undefined;
}
