import { fc } from './fast-check.ts';
import type {
  ActivityResult,
  CallModelInput,
  CallToolInput,
  HistoryEvent,
  ScheduledActivity,
  TurnResult,
  TurnStart,
  WorkflowClose,
} from '../../src/core/history.ts';
import { applyDelta, emptyText } from '../../src/core/message.ts';
import { firstCallOf, Turn } from '../../src/core/turn.ts';
import type { ApprovalPolicy, ToolCall } from '../../src/core/records/calls.ts';
import type { NewRecord } from '../../src/core/records/log.ts';
import type { MessagePlan } from '../../src/core/records/message.ts';
import type { PendingCall } from '../../src/core/records/pending.ts';
import { ROOT_THREAD } from '../../src/core/records/threads.ts';
import { callKey } from '../../src/core/tool-records.ts';
import type { DelegatedCall, DelegationResult } from '../../src/core/delegations.ts';
import type { Answer, TurnCommand } from '../../src/core/turn-command.ts';
import type { TurnActions } from '../../src/core/turn-actions.ts';
import {
  AT,
  attempt,
  framesOf,
  messageOf,
  precedingOf,
  TURN_ID,
  turnStart,
  type Attempt,
  type TurnStep,
} from './random-turn.ts';
import { allowedCalls } from './tracked-calls.ts';

/**
 * Turns that wait for people: for votes and answers, which may come too late, and for sign-ins; that wait for agents in
 * sessions of their own; and that are paused, resumed, steered and forced to answer at any moment.
 */
export function randomWaiting(maxAttempts = 2): fc.Arbitrary<TurnStep[]> {
  const messages = fc.array(fc.array(attempt, { minLength: 1, maxLength: maxAttempts }), {
    minLength: 1,
    maxLength: 3,
  });
  const choices = fc.array(fc.nat({ max: 59 }), { minLength: 10, maxLength: 60 });
  return fc.record({ messages, choices, hasServers: fc.boolean() }).map((shape) => new WaitingTurn(shape).steps);
}

interface Shape {
  /** The attempts at each message. */
  messages: Attempt[][];
  /** Everything else, decision by decision. */
  choices: number[];
  hasServers: boolean;
}

type ReadyCall = Pick<PendingCall, 'toolCallId' | 'source'> &
  Pick<CallToolInput, 'answered' | 'repeats'> & {
    /** The session of the agent to which it is delegated. */
    sessionId?: string;
  };

const POLICY: ApprovalPolicy = {
  quorum: 2,
  onExpiry: 'deny',
  expiresInSeconds: 10,
  escalate: { afterSeconds: 5, to: { subjects: ['bob'], roles: [] } },
};
const SERVER = { to: 'server', effect: 'once', callHash: 'h' } as const;
const ROUTES: [ToolCall['route'], ...ToolCall['route'][]] = [
  { ...SERVER, approval: false },
  { ...SERVER, approval: true },
  { ...SERVER, approval: true, policy: POLICY },
  { ...SERVER, approval: true, policy: { ...POLICY, onExpiry: 'allow' } },
  { to: 'client' },
  { to: 'session', sessionId: 'ses_child', callHash: 'h' },
];
const PLACE = { turnId: TURN_ID, sessionId: 'ses_1', threadId: ROOT_THREAD, specHash: 'a1' };
const SIGN_IN = { id: 's1', name: 's1', signInId: 'sign-in', authUrl: 'https://x/' };

const TERMINATED: WorkflowClose = { how: 'terminated', reason: 'abandoned' };
const completed = (result: TurnResult): WorkflowClose => ({ how: 'completed', result });

/** How often people act between two messages, before the turn is cancelled. */
const MAX_ROUNDS = 12;

class WaitingTurn {
  readonly steps: TurnStep[] = [];
  readonly #choices: number[];
  readonly #projection = new Turn();
  readonly #hasServers: boolean;
  #next = 0;
  #ordinal = 0;
  #eventId = 5;
  #commands = 0;
  #now = Date.parse(AT);

  constructor({ messages, choices, hasServers }: Shape) {
    this.#choices = choices;
    this.#hasServers = hasServers;
    const start = turnStart({ pause: 'wait', onUnknown: 'ask', hasServers });
    this.#event({ type: 'started', at: AT, start });
    this.#event({ type: 'closed', at: this.#at, close: this.#live(start, messages) });
  }

  /** Returns how the turn closes. */
  #live(start: TurnStart, messages: Attempt[][]): WorkflowClose {
    for (const [i, attempts] of [...messages, ...messages.slice(-1)].entries()) {
      const first = firstCallOf(start);
      const { threadId, createdAt } = first;
      const plan = i === 0 ? first : { threadId, createdAt, messageId: `msg_${i}`, upTo: this.#ordinal };
      const running = this.#callModel(plan, attempts, i, i === messages.length);
      if (!running) return TERMINATED;
      if (!this.#settle(running)) {
        this.#event({ type: 'commanded', command: { type: 'cancelled' } });
        this.#task(0);
        return this.#among(TERMINATED, completed({ status: 'cancelled', reason: 'client-cancelled' }));
      }
    }
    return this.#among(completed({ status: 'done', pending: [] }), completed({ status: 'error', message: 'broken' }));
  }

  /** Streams a message, while users act. Returns its calls that need no answer; undefined if the message does not end. */
  #callModel(plan: MessagePlan, attempts: Attempt[], step: number, isLast: boolean): ReadyCall[] | undefined {
    const { isForced } = this.#actions;
    const input: CallModelInput = { ...turnStart(), ...PLACE, ...plan, step, recent: [], runId: 'r', deadline: 0 };
    const end = this.#schedule({ name: 'callModel', input });
    let text = emptyText();
    let preceding: NewRecord[] = [];
    for (const [a, one] of attempts.entries()) {
      const shape = isForced || isLast ? { ...one, calls: [] } : one;
      text = emptyText();
      preceding = precedingOf(plan, shape);
      for (const frame of framesOf(plan, a + 1, shape)) {
        applyDelta(text, frame.delta);
        this.steps.push({ frame });
        if (this.#choose(4) === 0) this.#steer();
      }
    }
    if (this.#choose(12) === 0) return undefined;
    const message = messageOf(plan.messageId, text, false);
    if (this.#hasServers && !isLast && this.#choose(4) === 0) {
      const required: NewRecord = {
        kind: 'mcp.auth_required',
        at: this.#at,
        threadId: ROOT_THREAD,
        servers: [SIGN_IN],
        calls: [],
      };
      end({
        how: 'completed',
        records: [...preceding, { ...message, toolCalls: [], finishReason: 'cancelled' }, required],
      });
      return [];
    }
    const toolCalls = message.toolCalls.map((call) => ({ ...call, route: this.#among(...ROUTES) }));
    end({ how: 'completed', records: [...preceding, { ...message, toolCalls }], stamp: `s${step}` });
    return toolCalls.flatMap(({ id: toolCallId, route }, index) => {
      const source = { turnId: TURN_ID, messageId: message.id, stamp: `s${step}`, index, run: SERVER };
      if (route.to === 'session') return [{ toolCallId, source, sessionId: route.sessionId }];
      return route.to === 'server' && !route.approval ? [{ toolCallId, source }] : [];
    });
  }

  /** Until no call waits and no sign-in is missing. False if people take too long. */
  #settle(running: ReadyCall[]): boolean {
    const mayRun = [...running];
    for (let rounds = 0; rounds < MAX_ROUNDS; rounds++) {
      if (this.#actions.isHeld) this.#command('resume');
      const allowed = allowedCalls(this.#actions);
      for (const call of [...mayRun.splice(0), ...allowed]) this.#run(call);
      const { questions, delegations, pauses } = this.#actions;
      const isIdle =
        questions.unanswered.length === 0 &&
        allowedCalls(this.#actions).length === 0 &&
        delegations.started.length === 0 &&
        !pauses.has('sign_in');
      if (isIdle && !this.#actions.isHeld) return true;
      this.#act();
    }
    return false;
  }

  /** One of the users who may act does so, or some time passes. */
  #act(): void {
    const [waiting] = this.#actions.questions.waiting;
    const who = this.#among('ann', 'bob');
    const how = this.#choose(6);
    if (how === 0) this.#task(this.#among(1_000, 6_000, 12_000));
    else if (how === 1) this.#steer();
    else if (how < 4 && this.#actions.delegations.started.length > 0)
      this.#endDelegation(this.#among(...this.#delegated()));
    else if (how === 2 || !waiting || waiting.needs === 'sign_in') this.#signIn();
    else this.#answer(waiting, who);
  }

  #answer(call: PendingCall, who: string): void {
    const { threadId, toolCallId } = call;
    const answer: Answer =
      call.needs === 'response'
        ? { type: 'user.tool_response', threadId, toolCallId, content: 'it is so' }
        : {
            type: 'user.tool_approval',
            threadId,
            toolCallId,
            approval: { status: this.#among('allow', 'allow', 'deny') },
          };
    const may = { roles: ['user'] as const, mayDecide: true, mayRespond: true };
    this.#send({ type: 'answer', id: this.#id(), subject: subjectOf(who), ...may, answers: [answer] });
  }

  #delegated(): [DelegatedCall, ...DelegatedCall[]] {
    const [first, ...others] = this.#actions.delegations.started;
    if (!first) throw new Error('no call is delegated');
    return [first, ...others];
  }

  #endDelegation({ threadId, toolCallId, sessionId }: DelegatedCall): void {
    const outcome = this.#among<DelegationResult['outcome']>('succeeded', 'failed', 'cancelled');
    const result = { outcome, content: this.#id() };
    this.#send({ type: 'delegation', id: this.#id(), threadId, toolCallId, sessionId, result });
  }

  #signIn(): void {
    this.#send({ type: 'sign_in', id: this.#id(), signInId: SIGN_IN.signInId, by: subjectOf('ann') });
  }

  #steer(): void {
    const id = this.#id();
    const messages = [`message ${id}`];
    const how = this.#choose(8);
    if (how === 0) this.#command('force_answer');
    else if (how < 3) this.#command(how === 1 ? 'pause' : 'resume');
    else this.#send({ type: 'steer', id, subject: subjectOf('ann'), sessionId: 'ses_1', messages });
  }

  #command(type: 'pause' | 'resume' | 'force_answer'): void {
    this.#send({ type, id: this.#id(), subject: subjectOf('bob') });
  }

  /** A call runs. It may succeed, ask the user, need a sign-in, or be lost. */
  #run({ toolCallId, source, answered, repeats, sessionId }: ReadyCall): void {
    const continued = { ...(answered && { answered }), ...(repeats && { repeats }) };
    const input = { ...PLACE, toolCallId, source, onUnknown: {}, ...continued };
    const end = this.#schedule({ name: 'callTool', input });
    const place = { threadId: ROOT_THREAD, toolCallId };
    if (sessionId !== undefined) {
      // The other agent may have answered before its session is known to exist.
      if (this.#choose(3) === 0) this.#endDelegation({ ...place, sessionId });
      const started: ActivityResult = { how: 'completed', records: [], stamp: 't', isDelegated: true };
      return end(this.#among<ActivityResult>(started, started, { how: 'timed_out' }));
    }
    const how = this.#among('succeeded', 'succeeded', 'asks', 'needs a sign-in', 'lost');
    if (how === 'lost') return end({ how: 'timed_out' });
    if (how === 'asks') {
      const question = JSON.stringify({ message: 'Which?', requestedSchema: { type: 'object', properties: {} } });
      return end({ how: 'completed', records: [], stamp: 't', elicitation: { question, state: { blob: 'b' } } });
    }
    if (how === 'needs a sign-in') {
      const call: PendingCall = { ...place, needs: 'sign_in', source, signInId: SIGN_IN.signInId };
      const required = { kind: 'mcp.auth_required' as const, at: this.#at, threadId: ROOT_THREAD };
      return end({ how: 'completed', records: [{ ...required, servers: [SIGN_IN], calls: [call] }], stamp: 't' });
    }
    const response = { kind: 'tool.response' as const, at: this.#at, ...place, outcome: 'succeeded' as const };
    return end({ how: 'completed', records: [{ ...response, content: `result of ${callKey(place)}` }], stamp: 't' });
  }

  get #actions(): TurnActions {
    if (!this.#projection.actions) throw new Error('the turn has not started');
    return this.#projection.actions;
  }

  get #at(): string {
    return new Date(this.#now).toISOString();
  }

  #id(): string {
    return `req_${this.#commands++}`;
  }

  #choose(count: number): number {
    return (this.#choices[this.#next++ % this.#choices.length] ?? 0) % count;
  }

  #among<T>(first: T, ...others: T[]): T {
    return [first, ...others][this.#choose(others.length + 1)] ?? first;
  }

  #send(command: TurnCommand): void {
    this.#event({ type: 'commanded', command });
    // Otherwise it shares the task of what comes next.
    if (this.#choose(4) > 0) this.#task(0);
  }

  #task(after: number): void {
    this.#now += after;
    this.#event({ type: 'taskStarted', at: this.#at });
    this.#event({ type: 'taskCompleted' });
  }

  /** Returns the function that ends the activity, and its workflow task. */
  #schedule(activity: ScheduledActivity): (end: ActivityResult) => void {
    const eventId = this.#eventId++;
    this.#event({ type: 'scheduled', eventId, at: this.#at, activity });
    return (end) => {
      this.#event({ type: 'ended', scheduledEventId: eventId, at: this.#at, end });
      this.#task(0);
    };
  }

  #event(event: HistoryEvent): void {
    this.steps.push({ event });
    this.#ordinal += this.#projection.feed(event).length;
  }
}

function subjectOf(name: string) {
  return { subjectId: name, subjectType: 'user' as const, subjectSlug: name };
}
