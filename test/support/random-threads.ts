import { fc } from './fast-check.ts';
import type { ActivityResult, HistoryEvent, TurnResult } from '../../src/core/history.ts';
import { threadIdOf } from '../../src/core/ids.ts';
import { applyDelta, emptyText } from '../../src/core/message.ts';
import { firstCallOf, Turn } from '../../src/core/turn.ts';
import { endOfThread } from '../../src/core/sub-agents.ts';
import type { NewRecord } from '../../src/core/records/log.ts';
import type { MessagePlan } from '../../src/core/records/message.ts';
import type { PendingCall } from '../../src/core/records/pending.ts';
import type { OpenThread, SubAgent } from '../../src/core/records/threads.ts';
import { AT, attempt, framesOf, messageOf, TURN_ID, turnStart, type Attempt, type TurnStep } from './random-turn.ts';

const task = (maxAttempts: number) =>
  fc.record({
    /** The attempts at each of its messages. */
    messages: fc.array(fc.array(attempt, { minLength: 1, maxLength: maxAttempts }), { minLength: 1, maxLength: 3 }),
    end: fc.constantFrom('done', 'done', 'done', 'failed', 'timed_out', 'cancelled', 'paused'),
  });
type Task = ReturnType<typeof task> extends fc.Arbitrary<infer T> ? T : never;

const ending = fc.constantFrom('done', 'done', 'terminated', 'error', 'timed_out');

/** Turns whose root agent starts sub-agents, which work in parallel, in any order of their events. */
export function randomThreads(maxAttempts = 2): fc.Arbitrary<TurnStep[]> {
  const tasks = fc.array(task(maxAttempts), { minLength: 1, maxLength: 3 });
  const order = fc.array(fc.nat({ max: 5 }), { minLength: 10, maxLength: 60 });
  return fc
    .record({ root: attempt, tasks, order, ending, cutAfter: fc.nat({ max: 40 }) })
    .map((shape) => new ThreadsOfTurn(shape).steps);
}

interface Shape {
  root: Attempt;
  tasks: Task[];
  /** Which of the threads that are not done continues next. */
  order: number[];
  ending: string;
  /** How many steps of sub-agents come before the end of a turn that does not wait for them. */
  cutAfter: number;
}

/** One thread's next step, and undefined once it has none. */
type Next = () => undefined;

class ThreadsOfTurn {
  readonly steps: TurnStep[] = [];
  readonly #pending: PendingCall[] = [];
  readonly #paused: OpenThread[] = [];
  /** The log as its workflow has it. */
  readonly #log = new Turn();
  #eventId = 5;

  constructor({ root, tasks, order, ending, cutAfter }: Shape) {
    const start = turnStart();
    this.#event({ type: 'started', at: AT, start });
    const plan = firstCallOf(start);
    const message = { ...root, calls: tasks.map(() => ['{}']) };
    const threads = tasks.map((_, index): SubAgent => ({
      threadId: threadIdOf(plan.messageId, index),
      title: `task ${index}`,
      parent: { threadId: 'main', toolCallId: `call_${plan.messageId}_1_${index}` },
      depth: 1,
      specHash: 'a1',
      hasServers: false,
      iterations: 100,
    }));
    for (const step of this.#call(plan, [message], threads)) step();
    const running = tasks.map((one, i) => this.#thread(threads[i]!, one)[Symbol.iterator]());
    const count = ending === 'done' ? Infinity : cutAfter;
    for (let n = 0; running.length > 0 && n < count; n++) {
      const index = (order[n % order.length] ?? 0) % running.length;
      const next = running[index]?.next();
      if (next?.done === false) next.value();
      else running.splice(index, 1);
    }
    if (ending === 'done' && this.#pending.length === 0) {
      for (const step of this.#call(this.#plan('main', 'last'), [{ ...root, calls: [] }], [])) step();
    }
    this.#close(ending);
  }

  *#thread(agent: SubAgent, { messages, end }: Task): Generator<Next> {
    for (const [m, attempts] of messages.entries()) {
      const isLast = m === messages.length - 1;
      const calls = isLast && end !== 'paused' ? [] : [['{}']];
      const shapes = attempts.map((one) => ({ ...one, calls }));
      yield* this.#message(agent, `${agent.threadId}_${m}`, shapes, isLast ? end : undefined);
    }
  }

  /** A message and its tool call. What it answers is decided when its first step is taken: the log grows until then. */
  *#message(agent: SubAgent, id: string, shapes: Attempt[], end: Task['end'] | undefined): Generator<Next> {
    const { threadId } = agent;
    const plan = this.#plan(threadId, id);
    yield* this.#call(plan, shapes, [], { agent, end });
    if (end !== undefined && end !== 'paused') return;
    const toolCallId = `call_${plan.messageId}_${shapes.length}_0`;
    const source = { turnId: TURN_ID, messageId: plan.messageId, stamp: 's', index: 0 };
    if (end === 'paused') {
      this.#pending.push({ threadId, toolCallId, needs: 'approval', source });
      this.#paused.push({ ...agent, steps: 1 });
      return;
    }
    const scheduled = this.#eventId++;
    yield this.#step(() => {
      const place = { ...PLACE, threadId, specHash: 'a1', toolCallId };
      const input = { ...place, source: { ...source, run: { effect: 'once' as const, callHash: 'h' } } };
      this.#event({ type: 'scheduled', eventId: scheduled, at: AT, activity: { name: 'callTool', input } });
    });
    yield this.#step(() => {
      const content = `result of ${toolCallId}`;
      this.#ended(scheduled, [{ kind: 'tool.response', at: AT, threadId, toolCallId, outcome: 'succeeded', content }]);
    });
  }

  /** A model call of a thread; `thread.end`: how the thread ends with it. */
  *#call(
    plan: MessagePlan,
    shapes: Attempt[],
    started: SubAgent[],
    thread?: { agent: SubAgent; end: Task['end'] | undefined },
  ): Generator<Next> {
    const scheduled = this.#eventId++;
    const { threadId } = plan;
    const call = { ...PLACE, ...plan, step: 1, recent: [] };
    yield this.#step(() => {
      this.#event({ type: 'scheduled', eventId: scheduled, at: AT, activity: { name: 'callModel', input: call } });
    });
    let text = emptyText();
    for (const [a, shape] of shapes.entries()) {
      text = emptyText();
      for (const frame of framesOf(plan, a + 1, shape)) {
        applyDelta(text, frame.delta);
        yield this.#step(() => void this.steps.push({ frame }));
      }
    }
    yield this.#step(() => {
      const end = thread?.end;
      if (end === 'failed' || end === 'timed_out' || end === 'cancelled') {
        this.#event({ type: 'ended', scheduledEventId: scheduled, at: AT, end: FAILURES[end] });
        return;
      }
      const message = messageOf(plan.messageId, text, end === 'paused', threadId);
      const toThread = started.map((one) => ({ to: 'thread' as const, threadId: one.threadId }));
      const toolCalls = message.toolCalls.map((one, i) => ({ ...one, route: toThread[i] ?? one.route }));
      this.#ended(scheduled, [
        { ...message, toolCalls },
        ...started.map((one): NewRecord => ({ kind: 'thread.created', at: AT, thread: one, input: one.title })),
        ...(thread && end === 'done'
          ? endOfThread(thread.agent, { at: AT, end: { status: 'done' }, answer: message.content })
          : []),
      ]);
    });
  }

  #close(ending: string): void {
    const result: TurnResult =
      ending === 'error'
        ? { status: 'error', message: 'broken' }
        : { status: 'done', pending: this.#pending, ...(this.#paused.length > 0 && { threads: this.#paused }) };
    const how = { done: 'completed', error: 'completed' }[ending];
    if (how) this.#event({ type: 'closed', at: AT, close: { how: 'completed', result } });
    else if (ending === 'timed_out') this.#event({ type: 'closed', at: AT, close: { how: 'timed_out' } });
    else this.#event({ type: 'closed', at: AT, close: { how: 'terminated', reason: 'abandoned' } });
  }

  #plan(threadId: string, id: string): MessagePlan {
    return { threadId, messageId: `msg_${id}`, createdAt: AT, upTo: this.#log.ordinal };
  }

  #ended(scheduledEventId: number, records: NewRecord[]): void {
    this.#event({ type: 'ended', scheduledEventId, at: AT, end: { how: 'completed', records } });
  }

  #event(event: HistoryEvent): void {
    this.#log.feed(event);
    this.steps.push({ event });
  }

  #step(run: () => void): Next {
    return () => void run();
  }
}

const PLACE = { turnId: TURN_ID, sessionId: 'ses_1' };

const FAILURES: Record<'failed' | 'timed_out' | 'cancelled', ActivityResult> = {
  failed: { how: 'failed', message: 'no' },
  timed_out: { how: 'timed_out' },
  cancelled: { how: 'cancelled', started: true },
};
