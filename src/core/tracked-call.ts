import { heldCalls } from './call-order.ts';
import type { CallToolInput } from './history.ts';
import type {
  Approval,
  CallSource,
  EditedArguments,
  InputItem,
  PendingCall,
  PendingElicitation,
  ToolDecided,
} from './records.ts';
import { callKey, isAnswerable, type CallKey } from './tool-records.ts';
import { countVotes, type Vote } from './votes.ts';

/** The answer to a server's question that no person is asked. */
const CANCELLED_ANSWER = JSON.stringify({ action: 'cancel' });

/**
 * A tool call that may run: it needs no approval, is approved, has waited for a sign-in, or continues with an answer of
 * the user.
 */
export type ReadyCall = Pick<PendingCall, 'toolCallId' | 'source' | 'signInId' | 'edited' | 'policy' | 'requesters'> &
  Partial<Pick<PendingCall, 'needs' | 'isAskedAgain' | 'onReplaced' | 'unknownOutcome'>> &
  Pick<CallToolInput, 'answered' | 'repeats'>;

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
  /** Its activity was scheduled, or it has begun in an earlier run or turn: it may have taken effect. */
  hasBegun?: boolean;
  /** Its activity has not ended. */
  isRunning?: boolean;
  /** The arguments with which it was scheduled, or is to be, if not those that the model wrote. */
  edited?: EditedArguments | undefined;
  /** Set for a call that waits, or has waited. */
  pending?: PendingCall;
  /** Set for a call of a server that has not waited in this run. */
  source?: CallSource;
  /** Set for such a call if the turn has resumed it, or the run has. */
  resumed?: ReadyCall;
  /** The rule by which a decision on it is remembered: see `ruleFor`. */
  rule?: string;
  /** The answer to its server's question. */
  answer?: string;
  /** Its server's question, which no person is asked, since too many calls wait. */
  cancelled?: PendingElicitation;
  /** When the log asked for the answer: milliseconds since 1970. */
  askedAt?: number;
  isEscalated?: true;
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

/** Whether a call waits because of what came of it, not of its message. */
export function hasBeenAsked({ pending }: Pick<TrackedCall, 'pending'>): boolean {
  return pending?.elicitation !== undefined || pending?.unknownOutcome !== undefined || pending?.isAskedAgain === true;
}

/** The call, if it may run. */
export function readyCall(toolCallId: string, call: TrackedCall): ReadyCall | undefined {
  const { state, pending, source, resumed, answer, cancelled } = call;
  const refused = cancelled && { answered: { elicitation: cancelled, content: CANCELLED_ANSWER } };
  if (state === 'running') return source && { ...(resumed ?? { toolCallId, source }), ...refused };
  if (state !== 'allowed' || !pending) return undefined;
  const { elicitation } = pending;
  const answered = elicitation && answer !== undefined && { answered: { elicitation, content: answer } };
  const repeats = pending.unknownOutcome !== undefined && { repeats: true as const };
  return { ...pending, ...answered, ...repeats, ...refused };
}

export type CallResolution = Approval | { status: 'response'; content: string };

/** How the input of a turn resolves a pending call. One that it need not answer runs with any input. */
export function resolutionOf(call: CallKey & Pick<PendingCall, 'needs'>, input: InputItem[]): CallResolution {
  if (!isAnswerable(call)) return { status: 'allow' };
  for (const item of input) {
    if (item.type === 'user.message' || callKey(item) !== callKey(call)) continue;
    return item.type === 'user.tool_approval' ? item.approval : { status: 'response', content: item.content };
  }
  throw new Error(`the input does not answer ${call.toolCallId}, which the turn resumes`);
}

/** The call, if the turn's input allows that it runs or continues. */
export function resumedCall(call: PendingCall, input: InputItem[]): ReadyCall | undefined {
  const { source, elicitation, unknownOutcome } = call;
  const resolution = resolutionOf(call, input);
  if (resolution.status === 'response' && elicitation) {
    return { ...call, answered: { elicitation, content: resolution.content } };
  }
  if (!source.run || resolution.status !== 'allow') return undefined;
  const { edited } = resolution;
  const repeats = unknownOutcome !== undefined && { repeats: true as const };
  return { ...call, ...(edited && { edited }), ...repeats };
}

/** Whether one of a thread's calls runs, or is about to: it is not held by one that waits. */
export function isAnyActive(calls: readonly TrackedCall[]): boolean {
  const open = calls.filter(({ state }) => state !== 'settled').flatMap(placed);
  const held = new Set([...heldCalls(open)].map(({ call }) => call));
  return calls.some((call) => (call.state === 'running' || call.state === 'allowed') && !held.has(call));
}

/** A call with its place; empty for one that another thread answers. */
export function placed(call: TrackedCall): { call: TrackedCall; source: CallSource }[] {
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
