import { heldCalls } from './call-order.ts';
import type { CallSource, PendingCall, ToolDecided } from './records.ts';
import { countVotes, type Vote } from './votes.ts';

/** A call of a thread's last message, or of an earlier run's. */
export interface TrackedCall {
  /**
   * - `running`: the server runs it, or is about to.
   * - `delegated`: a sub-agent answers it, in its own thread, or another agent in its own session.
   * - `new`: it waits, and the log does not say so yet.
   * - `waiting`: the log has it in a `tool.approval_required`, `tool.response_required` or `mcp.auth_required`.
   * - `allowed`: it was approved, its server's question was answered, or its sign-in has ended, and is to run.
   * - `settled`: it was denied, has expired, or was answered.
   */
  state: 'running' | 'delegated' | 'new' | 'waiting' | 'allowed' | 'settled';
  /** Set for a call that waits, or has waited. */
  pending?: PendingCall;
  /** Set for a call that runs in an order, and has not waited. */
  source?: CallSource;
  /** The rule by which a decision on it is remembered: see `ruleFor`. */
  rule?: string;
  /** The answer to its server's question. */
  answer?: string;
  /** When the log asked for the answer: milliseconds since 1970. */
  askedAt?: number;
  isEscalated?: true;
  /** Its client has no result of its tool. */
  hasNoResult?: true;
  votes: Vote[];
}

/** A call that waits. */
export type AskedCall = Omit<TrackedCall, 'pending'> & { pending: PendingCall };

export function isAsked(call: TrackedCall | undefined): call is AskedCall {
  return call?.pending !== undefined;
}

export function isUnanswered({ state }: TrackedCall): boolean {
  return state === 'new' || state === 'waiting';
}

export function isWaitedFor(call: TrackedCall): boolean {
  return call.state === 'delegated' || isUnanswered(call);
}

/** Whether one of a thread's calls runs, or is about to: it is not held by one that waits. */
export function isAnyActive(calls: readonly TrackedCall[]): boolean {
  const open = calls.filter(({ state }) => state !== 'settled').flatMap(placed);
  const held = new Set([...heldCalls(open)].map(({ call }) => call));
  return calls.some((call) => (call.state === 'running' || call.state === 'allowed') && !held.has(call));
}

/** A call with its place; empty for one that no order concerns. */
function placed(call: TrackedCall): { call: TrackedCall; source: CallSource }[] {
  const source = call.pending?.source ?? call.source;
  return source ? [{ call, source }] : [];
}

/** Those of a thread's calls, with their ids, that have not begun because they are behind one that waits. */
export function behindWaiting(calls: ReadonlyMap<string, TrackedCall>): [id: string, call: TrackedCall][] {
  const all = [...calls].flatMap(([id, call]) => placed(call).map((one) => ({ id, ...one })));
  const holding = all.filter(({ call }) => isUnanswered(call));
  const behind: typeof all = [];
  for (const one of all.toSorted((a, b) => a.source.index - b.source.index)) {
    const { state } = one.call;
    if (state !== 'running' && state !== 'allowed') continue;
    if (heldCalls([...holding, ...behind, one]).has(one)) behind.push(one);
  }
  return behind.map(({ id, call }) => [id, call]);
}

export function remainingOf({ pending, votes }: AskedCall): number {
  return Math.max(0, (pending.policy?.quorum ?? 1) - countVotes(votes));
}

/** When an approval expires: milliseconds since 1970. */
export function expiresAt({ pending, askedAt = Infinity }: AskedCall): number | undefined {
  const { expiresInSeconds } = pending.policy ?? {};
  return expiresInSeconds === undefined ? undefined : askedAt + expiresInSeconds * 1000;
}

export function escalatesAt({ pending, askedAt = Infinity, isEscalated }: AskedCall): number | undefined {
  const { escalate } = pending.policy ?? {};
  return !escalate || isEscalated ? undefined : askedAt + escalate.afterSeconds * 1000;
}

export function decided(
  { threadId, toolCallId }: PendingCall,
  decision: ToolDecided['decision'],
  rest: Pick<ToolDecided, 'at' | 'by' | 'reason' | 'edited' | 'isRemembered' | 'remaining'>,
): Omit<ToolDecided, 'id'> {
  return { kind: 'tool.decided', threadId, toolCallId, decision, ...rest };
}
