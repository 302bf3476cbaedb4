import { heldCalls, KERNEL } from './call-order.ts';
import type { CallSource } from './records/calls.ts';
import type { TurnStart } from './history.ts';
import type { UnsequencedRecord } from './records/log.ts';
import type { Approval, PendingCall, ToolDecided } from './records/pending.ts';
import {
  callKey,
  hasBegun,
  heldCall,
  isAnswerable,
  isOverdue,
  unsuccessfulResponse,
  type CallKey,
} from './tool-records.ts';
import { countVotes, type Vote } from './votes.ts';

/** The answer to a server's question that no person is asked. */
export const CANCELLED_ANSWER = JSON.stringify({ action: 'cancel' });

/** A tool call of a thread's last message. It has the known fields of a {@link PendingCall}. */
export interface Call extends CallKey, Partial<Omit<PendingCall, keyof CallKey>> {
  /**
   * - `ready`: it is to run: it needs no approval, was approved, its server's question was answered, or its sign-in has
   *   ended.
   * - `running`: its activity has begun.
   * - `delegated`: a sub-agent works on it in its own thread, or another agent in its own session.
   * - `new`: it waits, and no record of the log requests the answer yet.
   * - `waiting`: the log has it in a `tool.approval_required`, `tool.response_required` or `mcp.auth_required`.
   * - `settled`: it has a result.
   */
  state: 'ready' | 'running' | 'delegated' | 'new' | 'waiting' | 'settled';
  /** It has begun, in this turn or in an earlier one: it may have taken effect. */
  hasBegun?: true;
  /** The rule by which a decision on it is remembered: see `ruleFor`. */
  rule?: string;
  /** When a record requested the answer: milliseconds since 1970. */
  askedAt?: number;
  isEscalated?: true;
  /** How many hosts were lost before they could begin it. */
  lostHosts?: number;
  /** A client has interrupted this cell. */
  isInterrupted?: true;
  votes: Vote[];
}

/** A turn that resolves the pending calls of the previous one. */
type ResolvingTurn = Pick<TurnStart, 'input' | 'createdAt'>;

/** A call that waits, or has waited. */
export type AskedCall = Call & PendingCall;

export function isAsked(call: Call | undefined): call is AskedCall {
  return call?.needs !== undefined;
}

/** Whether a call runs on the host of the session's sandbox. */
export function runsInSandbox({ source }: Pick<Call, 'source'>): boolean {
  return source?.run?.inSandbox === true;
}

/** Whether a call is a cell: code that a kernel runs. */
export function isCell({ source }: Pick<Call, 'source'>): boolean {
  return source?.run?.order?.server === KERNEL && source.run.effect === 'once';
}

/** Ends calls that do not run. @param text the result of the calls that have not begun */
export function settleCalls(calls: readonly Call[], text: string, at: string): UnsequencedRecord[] {
  return calls.map((call) => {
    call.state = 'settled';
    return call.hasBegun
      ? unsuccessfulResponse(call, 'unknown_outcome', at, call.unknownOutcome)
      : unsuccessfulResponse(call, 'cancelled', at, text);
  });
}

export function isUnanswered({ state }: Call): boolean {
  return state === 'new' || state === 'waiting';
}

/** A call that waits from now on, unless `more` has another state. */
export function askedCall(pending: PendingCall, more: Partial<Call> = {}): Call {
  return { state: 'new', ...pending, ...(hasBegun(pending) && { hasBegun: true }), votes: [], ...more };
}

/** The fields of a waiting call for the log and for the next turn. */
export function pendingOf(call: AskedCall): PendingCall {
  const { state: _, hasBegun: __, rule: ___, askedAt: ____, isEscalated: _____, votes: ______, ...pending } = call;
  return pending;
}

/** The pending call that a call without a result leaves to the next turn; undefined if another thread works on it. */
export function pendingLeft(call: Call): PendingCall | undefined {
  if (isUnanswered(call)) return isAsked(call) ? pendingOf(call) : undefined;
  const { source } = call;
  return source && call.state === 'ready' ? pendingOf(heldCall({ ...call, source })) : undefined;
}

/**
 * How the input of a turn resolves a pending call. A call that needs no answer runs with any input. A call that code no
 * longer waits for has expired.
 */
export function resolutionOf(
  call: CallKey & Pick<PendingCall, 'needs'> & Partial<Pick<PendingCall, 'action'>>,
  { input, createdAt }: ResolvingTurn,
): Approval | { status: 'response'; content: string } | { status: 'expired' } {
  if (!isAnswerable(call)) return { status: 'allow' };
  if (isOverdue(call, Date.parse(createdAt))) return { status: 'expired' };
  for (const item of input) {
    if (item.type === 'user.message' || callKey(item) !== callKey(call)) continue;
    return item.type === 'user.tool_approval' ? item.approval : { status: 'response', content: item.content };
  }
  throw new Error(`the input does not answer ${call.toolCallId}, which the turn resumes`);
}

/** The call, if the turn's input allows that it runs or continues. */
export function resumedCall(call: PendingCall, turn: ResolvingTurn): Call | undefined {
  const resolution = resolutionOf(call, turn);
  const { elicitation } = call;
  if (resolution.status === 'response') {
    const answered = elicitation && { elicitation, content: resolution.content };
    return answered && askedCall(call, { state: 'ready', answered });
  }
  if (!call.source.run || resolution.status !== 'allow') return undefined;
  const { edited } = resolution;
  return askedCall(call, { state: 'ready', ...(edited && { edited }) });
}

/** The ready calls of a thread that may begin: no earlier call without a result blocks them. */
export function readyOf(calls: Iterable<Call>): Call[] {
  const open = [...calls].filter(({ state }) => state !== 'settled').flatMap(withSource);
  const held = heldCalls(open);
  return open.filter((one) => one.call.state === 'ready' && !held.has(one)).map(({ call }) => call);
}

/** The calls of a thread, in order, that have not begun because an earlier one waits for an answer. */
export function behindWaiting(calls: Iterable<Call>): Call[] {
  const all = [...calls].flatMap(withSource);
  const holding = all.filter(({ call }) => isUnanswered(call));
  const behind: typeof all = [];
  for (const one of all.toSorted((a, b) => a.source.index - b.source.index)) {
    if (one.call.state !== 'ready') continue;
    if (heldCalls([...holding, ...behind, one]).has(one)) behind.push(one);
  }
  return behind.map(({ call }) => call);
}

/** A call with its position in its message; empty for one that another thread works on. */
function withSource(call: Call): { call: Call; source: CallSource }[] {
  return call.source ? [{ call, source: call.source }] : [];
}

export function remainingOf({ policy, votes }: Call): number {
  return Math.max(0, (policy?.quorum ?? 1) - countVotes(votes));
}

/** When an approval expires, by its policy or because code does not wait any more: milliseconds since 1970. */
export function expiresAt({
  policy,
  action,
  askedAt = Infinity,
}: Pick<Call, 'policy' | 'action' | 'askedAt'>): number | undefined {
  const { expiresInSeconds = Infinity } = policy ?? {};
  const expiry = Math.min(askedAt + expiresInSeconds * 1000, action?.expiresAt ?? Infinity);
  return expiry === Infinity ? undefined : expiry;
}

export function escalatesAt({ policy, askedAt = Infinity, isEscalated }: Call): number | undefined {
  const { escalate } = policy ?? {};
  return !escalate || isEscalated ? undefined : askedAt + escalate.afterSeconds * 1000;
}

export function decided(
  { threadId, toolCallId }: CallKey,
  decision: ToolDecided['decision'],
  rest: Pick<ToolDecided, 'at' | 'by' | 'reason' | 'edited' | 'isRemembered' | 'remaining'>,
): Omit<ToolDecided, 'id'> {
  return { kind: 'tool.decided', threadId, toolCallId, decision, ...rest };
}
