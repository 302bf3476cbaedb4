import {
  askedCall,
  behindWaiting,
  CANCELLED_ANSWER,
  decided,
  escalatesAt,
  expiresAt,
  isAsked,
  isUnanswered,
  pendingOf,
  remainingOf,
  type AskedCall,
  type Call,
} from './call.ts';
import { isRequester, isShown, mayAnswer, withRequesters } from './deciders.ts';
import { firstRefusal, refuseAnswer, type Refusal } from './input-rules.ts';
import type { UnsequencedRecord } from './records/log.ts';
import type { PendingCall, ToolDecided } from './records/pending.ts';
import type { TurnError } from './records/turn.ts';
import type { RememberedDecision } from './remembered-decisions.ts';
import type { Subject } from './subject.ts';
import { isoTime } from './text.ts';
import type { Threads } from './threads.ts';
import {
  actionsRequired,
  callName,
  clientResponse,
  denial,
  hasBeenAsked,
  hasBegun,
  isOverdue,
  unsuccessfulResponse,
  type CallKey,
} from './tool-records.ts';
import type { Answer, AnswerCommand, Verdict } from './turn-command.ts';
import { hasVoted, isRepeated, withVote } from './votes.ts';

interface QuestionsOptions {
  threads: Threads;
  /** Whether the turn waits for answers. Otherwise it ends, and its end has the questions. */
  waits: boolean;
  /** The ids of the subjects that have sent the turn messages. */
  authors: () => readonly string[];
  remembered: Questions['remembered'] | undefined;
}

/** How many calls may wait for an answer of the user at once: one event has all of their questions. */
export const MAX_ASKING = 32;

/** Whether the limit applies to a call: unknown outcomes are limited elsewhere, and approvals are not limited. */
function isLimited({ needs, unknownOutcome }: PendingCall): boolean {
  return needs === 'response' && unknownOutcome === undefined;
}

/** The result, for the model, of a call that waited when an answer was forced. */
const NOT_AWAITED = 'This tool call was not executed: the user asked for an answer before it was decided.';

/**
 * The calls of a turn that wait: when they are asked about, who may answer them, what an answer does to them, and when
 * they expire or are escalated. A part of `TurnActions`. `now` is in milliseconds since 1970.
 */
export class Questions {
  readonly #threads: Threads;
  readonly #waits: boolean;
  readonly #authors: () => readonly string[];
  /** By the rules of the calls: see `ruleFor`. */
  readonly #remembered: Map<string, RememberedDecision>;
  #failure: Pick<TurnError, 'message'> | undefined;

  constructor({ threads, waits, authors, remembered }: QuestionsOptions) {
    this.#threads = threads;
    this.#waits = waits;
    this.#authors = authors;
    this.#remembered = new Map(remembered);
  }

  /** The decisions that hold for later calls. */
  get remembered(): [rule: string, decision: RememberedDecision][] {
    return [...this.#remembered];
  }

  /** Why the turn must end: an approval whose policy ends the turn has expired. */
  get failure(): Pick<TurnError, 'message'> | undefined {
    return this.#failure;
  }

  /** The calls that have no answer, including those that the turn's end will request. */
  get unanswered(): AskedCall[] {
    const all = [...this.#threads.values()].flatMap(({ calls }) => [...calls.values()]);
    return all.filter(isUnanswered).filter(isAsked);
  }

  /** The calls that wait. */
  get waiting(): AskedCall[] {
    return this.#all('waiting');
  }

  /** Whether calls wait for which no record has requested an answer. */
  get isAnyNew(): boolean {
    return this.#all('new').length > 0;
  }

  /** When a call expires or is escalated next, at the earliest. */
  get nextDue(): number {
    return Math.min(...this.waiting.flatMap((call) => [expiresAt(call) ?? Infinity, escalatesAt(call) ?? Infinity]));
  }

  find({ threadId, toolCallId }: CallKey): Call | undefined {
    return this.#threads.get(threadId)?.calls.get(toolCallId);
  }

  /**
   * A running call waits for an answer. If too many calls wait, a server's question to the user is answered as
   * cancelled, and its call continues. The number of unknown outcomes is limited before the calls run.
   */
  add(pending: PendingCall): void {
    const { threadId, toolCallId, elicitation } = pending;
    const before = this.find(pending);
    if (isLimited(pending) && this.#askedWith(threadId) >= MAX_ASKING) {
      if (before && elicitation) {
        Object.assign(before, { state: 'ready', answered: { elicitation, content: CANCELLED_ANSWER } });
      }
      return;
    }
    const { hasBegun: isBegun, rule } = before ?? {};
    const known = pending.isAskedAgain ? rule !== undefined && { rule } : isBegun && { hasBegun: isBegun };
    this.#threads.get(threadId)?.calls.set(toolCallId, askedCall(pending, { ...known }));
  }

  /** How many waiting calls share one event with the questions of the thread. */
  #askedWith(threadId: string): number {
    const all = this.unanswered;
    return this.#waits ? all.length : all.filter((call) => call.threadId === threadId && hasBeenAsked(call)).length;
  }

  /** Asks about the new calls. Returns the requests, and the decisions on calls for which an earlier decision holds. */
  ask(now: number): UnsequencedRecord[] {
    const records = this.#decideAsBefore(isoTime(now));
    const calls = this.#all('new');
    for (const call of calls) {
      Object.assign(call, withRequesters(call, this.#authors()), { state: 'waiting', askedAt: now });
    }
    return [...records, ...actionsRequired(calls.map(pendingOf), isoTime(now))];
  }

  /** A sign-in has ended: the calls that have waited for it are tried again. */
  signInEnded(signInId: string): void {
    for (const call of this.waiting) if (call.signInId === signInId) call.state = 'ready';
  }

  /** Settles the calls that wait, and those behind them. Returns their results. */
  giveUp(now: number): UnsequencedRecord[] {
    if (!this.#waits) return [];
    const at = isoTime(now);
    const behind = [...this.#threads.values()].flatMap(({ calls }) => behindWaiting(calls.values()));
    const records = [
      ...[...this.#all('new'), ...this.waiting].map((call) => {
        call.state = 'settled';
        return hasBegun(call)
          ? unsuccessfulResponse(call, 'unknown_outcome', at, call.unknownOutcome)
          : unsuccessfulResponse(call, 'cancelled', at, NOT_AWAITED);
      }),
      ...behind.map((call) => unsuccessfulResponse(call, 'cancelled', at, NOT_AWAITED)),
    ];
    for (const call of behind) call.state = 'settled';
    return records;
  }

  /** Whether all calls that a command answers wait for an answer. */
  areAwaited(command: AnswerCommand): boolean {
    return command.answers.every((answer) => isAwaitedBy(command, this.find(answer)));
  }

  /** Whether a subject has given this answer before. */
  isRepeated(answer: Answer, by: Subject): boolean {
    return isRepeated(this.find(answer)?.votes ?? [], by, answer);
  }

  /** Whether there are calls that a command could answer, or could have answered. */
  hasCallsOf({ answers }: AnswerCommand): boolean {
    return this.waiting.length > 0 || answers.some((answer) => isAsked(this.find(answer)));
  }

  /** Why the answers of a command are refused. */
  refuse(command: AnswerCommand): Verdict {
    return firstRefusal(command.answers, (answer, isAnswered) =>
      isAnswered
        ? { code: 'call_answered_twice', message: `${callName(answer)} is answered twice` }
        : this.#refuse(answer, command),
    );
  }

  #refuse(answer: Answer, caller: AnswerCommand): Refusal | undefined {
    const call = this.find(answer);
    const what = callName(answer);
    // A repetition stays accepted, also when others have decided in the meantime.
    if (this.isRepeated(answer, caller.subject)) return undefined;
    const asked = isAsked(call) && withRequesters(call, this.#authors());
    if (!asked || !isShown(asked, caller)) {
      return { code: 'call_not_pending', message: `${what} does not wait for an answer` };
    }
    if (asked.needs === 'sign_in') {
      return { code: 'call_not_pending', message: `${what} waits for a sign-in, which no answer replaces` };
    }
    const refusal = refuseAnswer(asked, answer);
    if (refusal) return refusal;
    if (!mayAnswer(asked, answer, caller)) {
      const reason = isRequester(asked, caller)
        ? 'its policy excludes those who have asked for it'
        : 'its approvers may';
      return { code: 'not_an_approver', message: `you may not answer ${what}: ${reason}` };
    }
    if (answer.type === 'user.tool_approval' && answer.remembers && asked.rule === undefined) {
      return {
        code: 'remember_not_allowed',
        message: `no decision on ${what} is remembered: its policy says who decides each call`,
      };
    }
    if (hasVoted(asked.votes, caller.subject)) {
      return { code: 'already_decided', message: `you have already answered ${what}, differently` };
    }
    if (!isAwaitedBy(caller, asked)) return { code: 'already_decided', message: `${what} was already decided` };
    return undefined;
  }

  /** Applies an answer that `refuse` accepts. */
  answer(answer: Answer, by: Subject, now: number): UnsequencedRecord[] {
    const call = this.find(answer);
    if (!isAsked(call) || call.state !== 'waiting' || this.isRepeated(answer, by)) return [];
    const at = isoTime(now);
    call.votes = withVote(call.votes, by, answer);
    if (answer.type === 'user.tool_response' && call.elicitation) {
      const answered = { elicitation: call.elicitation, content: answer.content };
      Object.assign(call, { state: 'ready', answered });
      return [decided(call, 'respond', { at, by, remaining: 0 })];
    }
    if (answer.type === 'user.tool_response') {
      call.state = 'settled';
      return [clientResponse(call, answer, { at, by })];
    }
    const { approval, remembers } = answer;
    const remembered = remembers && { isRemembered: remembers };
    if (remembers && call.rule !== undefined) {
      const { status } = approval;
      const reason = status === 'deny' && approval.reason;
      this.#remembered.set(call.rule, { status, by, ...(reason && { reason }) });
    }
    if (approval.status === 'deny') return this.#deny(call, approval, { at, by, ...remembered });
    const { edited } = approval;
    const remaining = remainingOf(call);
    if (remaining === 0) Object.assign(call, { state: 'ready', ...(edited && { edited }) });
    return [decided(call, 'allow', { at, by, remaining, ...(edited && { edited }), ...remembered })];
  }

  #deny(
    call: AskedCall,
    { reason }: { reason?: string },
    vote: Pick<ToolDecided, 'at' | 'by' | 'isRemembered'>,
  ): UnsequencedRecord[] {
    call.state = 'settled';
    return [decided(call, 'deny', { ...vote, remaining: 0, ...(reason && { reason }) }), denial(call, reason, vote.at)];
  }

  /** Decides the new calls for which an earlier decision holds. */
  #decideAsBefore(at: string): UnsequencedRecord[] {
    return this.#all('new').flatMap((call) => {
      // A remembered decision is older than the loss of the state at the server.
      const { rule, isAskedAgain } = call;
      const decision = isAskedAgain || rule === undefined ? undefined : this.#remembered.get(rule);
      if (!decision) return [];
      const vote = { at, by: decision.by, isRemembered: true as const };
      if (decision.status === 'deny') return this.#deny(call, decision, vote);
      call.state = 'ready';
      return [decided(call, 'allow', { ...vote, remaining: 0 })];
    });
  }

  /** Escalates and ends the calls whose time has come. */
  advance(now: number): UnsequencedRecord[] {
    const at = isoTime(now);
    return this.waiting.flatMap((call) => {
      const records: UnsequencedRecord[] = [];
      const [expiry = Infinity, escalation = Infinity] = [expiresAt(call), escalatesAt(call)];
      if (escalation <= now && escalation < expiry) {
        call.isEscalated = true;
        records.push(decided(call, 'escalated', { at, remaining: remainingOf(call) }));
      }
      if (expiry <= now) records.push(...this.#expire(call, now));
      return records;
    });
  }

  #expire(call: AskedCall, now: number): UnsequencedRecord[] {
    const at = isoTime(now);
    const expired = decided(call, 'expired', { at, remaining: 0 });
    // If the code no longer waits, the call does not run even if its policy allows it on expiry.
    const onExpiry = isOverdue(call, now) ? 'deny' : call.policy?.onExpiry;
    if (onExpiry === 'allow') {
      call.state = 'ready';
      return [expired];
    }
    call.state = 'settled';
    if (onExpiry === 'end') this.#failure ??= { message: `The approval of tool call ${call.toolCallId} expired.` };
    return [expired, unsuccessfulResponse(call, 'expired', at)];
  }

  #all(state: 'new' | 'waiting'): AskedCall[] {
    return this.#waits ? this.unanswered.filter((call) => call.state === state) : [];
  }
}

/** Whether a call waits, and did so when its answer was sent. */
function isAwaitedBy({ askedUntil = Infinity }: AnswerCommand, call: Call | undefined): boolean {
  return call?.state === 'waiting' && (call.askedAt ?? 0) <= askedUntil;
}
