import {
  ActivityCancellationType,
  CancellationScope,
  condition,
  isCancellation,
  proxyActivities,
  proxySinks,
  workflowInfo,
} from '@temporalio/workflow';
import type { Activities } from '../activities/index.ts';
import { heldCalls } from '../src/core/call-order.ts';
import type {
  CallModelInput,
  CallModelResult,
  CallToolResult,
  NextModelCall,
  SessionOwner,
  TurnStart,
} from '../src/core/history.ts';
import { DIGITS, ulid } from '../src/core/ids.ts';
import { firstCallOf, startsWithModelCall, type Ended } from '../src/core/projection.ts';
import {
  isMisfit,
  ROOT_THREAD,
  type MessagePlan,
  type ModelMessage,
  type OpenThread,
  type PendingCall,
  type SubAgent,
  type Waiting,
} from '../src/core/records.ts';
import { mayRepeatSignIns } from '../src/core/sign-ins.ts';
import { toolLanes } from '../src/core/tool-lanes.ts';
import { callKey, heldCall, onReplacedOf, openCallsOf } from '../src/core/tool-records.ts';
import { progressOf, type ThreadState } from '../src/core/thread-state.ts';
import type { ThreadResult } from '../src/core/turn-result.ts';
import { ownerOfThread } from '../src/core/work-owner.ts';
import { isLimited, MAX_ASKING } from '../src/core/turn-actions.ts';
import { causeOf, errorMessage } from './errors.ts';
import type { CommandSinks } from './turn-commands.ts';
import type { ReadyCall, Resumed, TurnScope } from './turn-scope.ts';

/**
 * With the default, a workflow sees a cancellation at once although a result may still be added to its history. The log
 * would then have records that the workflow does not know.
 */
const cancellationType = ActivityCancellationType.WAIT_CANCELLATION_COMPLETED;

/**
 * After this time without a heartbeat a worker is considered lost. The interval is in
 * `src/temporal/activity-heartbeat.ts`.
 */
const HEARTBEAT_TIMEOUT = '4 seconds';

/**
 * Model calls have three kinds of retries. This policy retries lost workers and shutdowns; the heartbeat time-out and
 * the first interval are short, so that another worker resumes within 5 s. The activity sets `nextRetryDelay` for a
 * provider that fails, and ends the turn if it fails for too long or too many workers were lost.
 * `retryWhileUnavailable` retries reads and writes of the stores within an attempt. An attempt whose model stalls ends
 * itself.
 */
const { callModel } = proxyActivities<Pick<Activities, 'callModel'>>({
  startToCloseTimeout: '2 hours',
  heartbeatTimeout: HEARTBEAT_TIMEOUT,
  cancellationType,
  retry: { initialInterval: '100 milliseconds', maximumInterval: '30 seconds' },
});

/** Unreachable servers are a result, not a failure; lost workers and shutdowns are retried. */
const { connectTools } = proxyActivities<Pick<Activities, 'connectTools'>>({
  startToCloseTimeout: '5 minutes',
  heartbeatTimeout: HEARTBEAT_TIMEOUT,
  cancellationType,
  retry: { initialInterval: '100 milliseconds', maximumInterval: '10 seconds' },
});

const { speculation } = proxySinks<Pick<CommandSinks, 'speculation'>>();

/** What the server of a further call is told. */
const CANCELLED_ANSWER = JSON.stringify({ action: 'cancel' });

/** How long a task waits for the process that keeps its call open: if that is not available now, it has ended. */
const KEPT_OPEN_TIMEOUT = '10 seconds';

/**
 * The agent loop of one thread: calls the model, and runs its tool calls and its sub-agents until it calls none, or calls
 * are pending. A sub-agent runs its own loop as a part of its parent's step, and ends in the log: see `endOfThread`.
 */
export class Thread {
  readonly #turn: TurnScope;
  /** Undefined for the root agent. */
  readonly #agent: SubAgent | undefined;
  readonly #place: { threadId: string; specHash: string; owner: SessionOwner; isRun?: true };
  /** The calls of the last message that ask the user, for a turn that ends when it needs an answer. */
  #asking: PendingCall[] = [];
  /** The calls of the last message that wait for a sign-in. */
  #unexecuted: PendingCall[] = [];

  /** @param agent undefined for the root agent */
  constructor(turn: TurnScope, agent?: SubAgent) {
    const { start } = turn;
    this.#turn = turn;
    this.#agent = agent;
    this.#place = {
      threadId: agent?.threadId ?? ROOT_THREAD,
      specHash: agent?.specHash ?? start.specHash,
      owner: agent ? ownerOfThread(start.owner, agent) : start.owner,
      ...(start.isRun && { isRun: true }),
    };
  }

  /** What it has done. */
  get state(): Readonly<ThreadState> {
    return this.#turn.thread(this.#place.threadId);
  }

  /** What is known of the next model call. */
  get next(): NextModelCall {
    return { recent: this.#turn.stampsSince(this.state.read) };
  }

  async run(resumed: Resumed): Promise<ThreadResult> {
    await this.#takeSlot();
    try {
      return await this.#loop(resumed);
    } finally {
      this.#leaveSlot();
    }
  }

  async #loop({ ready, pending, threads }: Resumed): Promise<ThreadResult> {
    if (this.#connectsFirst()) {
      await this.#turn.untilMayBegin();
      if (!this.#mustEnd()) await this.#connectTools();
    }
    const subAgents = threads.map((thread) => {
      const { steps: _, refused: __, planned: ___, ...agent } = thread;
      return new Thread(this.#turn, agent);
    });
    let end = await this.#settle(ready, pending, subAgents);
    while (!end) {
      if (this.#turn.actions.isModelAwaited(this.#place.threadId)) await this.#untilModelMayBeCalled();
      if (!this.#isBegunByStart) await this.#turn.untilMayBegin(() => workflowInfo().continueAsNewSuggested);
      end = this.#mustEnd() ?? (await this.#step());
      if (end?.status === 'done' && !this.#isAtLimit && (await this.#isSteered())) end = undefined;
    }
    return end;
  }

  /**
   * Whether messages have arrived that the model has not read: the turn continues, and answers them. At its limit of model
   * calls it has ended, and they are left to the next turn, as those that arrive after any other end.
   */
  async #isSteered(): Promise<boolean> {
    if (this.#agent) return false;
    await this.#turn.untilRecorded();
    return this.#turn.actions.steering.hasUnread && !this.#turn.stopped();
  }

  /** Waits for sign-ins, or for the client's toolkits. Leaves its slot to others meanwhile. */
  async #untilModelMayBeCalled(): Promise<void> {
    const { actions, stopped } = this.#turn;
    const mayGoOn = () =>
      stopped() || !actions.isModelAwaited(this.#place.threadId) || workflowInfo().continueAsNewSuggested;
    this.#leaveSlot();
    await CancellationScope.nonCancellable(() => condition(mayGoOn));
    await this.#takeSlot();
  }

  /** Whether the next model call is the one that the start of the turn has begun: readers may have seen its answer. */
  get #isBegunByStart(): boolean {
    const { start } = this.#turn;
    return !this.#agent && !start.carry && this.state.steps === 0 && !this.state.planned && startsWithModelCall(start);
  }

  /** Why the thread may not call its model again. */
  #mustEnd(): ThreadResult | undefined {
    if (this.#turn.stopped()) return { status: 'stopped' };
    if (workflowInfo().continueAsNewSuggested) return this.#open('continue', [], []);
    if (!this.#isAtLimit) return undefined;
    const message = `The turn reached its iteration limit of ${this.#turn.start.limits.iterations} model calls.`;
    return { status: 'error', message, code: 'iteration_limit' };
  }

  /** Beyond a limit at which the turn answers, its calls are forced: they repair the answer, or answer a late message. */
  get #isAtLimit(): boolean {
    const { iterations, answersAtIterations } = this.#turn.start.limits;
    return !this.#agent && !answersAtIterations && this.#modelCalls >= iterations;
  }

  /** The steps that count against the limit. */
  get #modelCalls(): number {
    const { steps, refused, isGiven } = this.state;
    return steps - refused - (isGiven ? 1 : 0);
  }

  /** Whether the thread connects to its servers before anything else; otherwise its model calls do that. */
  #connectsFirst(): boolean {
    const { start } = this.#turn;
    // A dynamic sub-agent uses its parent's servers.
    if (this.#agent) return this.#agent.agent !== undefined && this.#agent.hasServers && this.state.steps === 0;
    return !start.carry && start.hasServers && !startsWithModelCall(start);
  }

  async #step(): Promise<ThreadResult | undefined> {
    const answer = await this.#callModel();
    if (!answer || 'status' in answer) return answer;
    const { message, stamp, started } = answer;
    const calls = openCallsOf(message, { turnId: this.#turn.start.turnId, stamp });
    const ready = calls.filter((call) => !call.pending);
    const pending = calls.flatMap((call) => call.pending ?? []);
    const subAgents = started.map((thread) => new Thread(this.#turn, thread));
    return this.#settle(ready, pending, subAgents);
  }

  /** Runs the calls that may run and the sub-agents. Undefined if nothing is open after that. */
  async #settle(ready: ReadyCall[], pending: PendingCall[], subAgents: Thread[]): Promise<ThreadResult | undefined> {
    const { ends, held } = await this.#runAll(ready, pending, subAgents);
    const { actions } = this.#turn;
    if (this.#turn.stopped() || ends.some(({ status }) => status === 'stopped')) return { status: 'stopped' };
    if (this.#hasFailed) return { status: 'error', message: NO_RESULT, code: 'tool_failed' };
    const open = ends.filter((end) => end.status === 'waiting' || end.status === 'continue');
    // A turn that waits carries its pending calls in its actions.
    const answerable = actions.waits ? [] : [...pending, ...this.#asking.splice(0)];
    const { threadId } = this.#place;
    const later = held.map((call): PendingCall => heldCall({ ...call, threadId }));
    const all = [...answerable, ...this.#unexecuted.splice(0), ...later, ...open.flatMap((end) => end.pending)];
    const threads = open.flatMap((end) => end.threads);
    const mustContinue = open.some(({ status }) => status === 'continue') || actions.isOpen(threadId);
    if (mustContinue) return this.#open('continue', all, threads);
    return all.length > 0 || open.length > 0 ? this.#open('waiting', all, threads) : undefined;
  }

  /** Runs what `#settle` runs. `held`: the ready calls that wait for others of their server. */
  async #runAll(
    ready: ReadyCall[],
    pending: PendingCall[],
    subAgents: Thread[],
  ): Promise<{ ends: ThreadResult[]; held: ReadyCall[] }> {
    const { actions } = this.#turn;
    const waits = actions.isOpen(this.#place.threadId);
    if (subAgents.length === 0 && !waits) {
      const held = await (actions.waits ? this.#callToolsAsAllowed(ready) : this.#callTools(ready, pending));
      return { ends: [], held };
    }
    // A thread that waits, for people or for its sub-agents, leaves its slot to others.
    if (waits) this.#leaveSlot();
    const run = actions.waits ? this.#callToolsAsAllowed(ready) : this.#callTools(ready, pending);
    const tools = waits
      ? run
      : run.then((held) => {
          this.#leaveSlot();
          return held;
        });
    const runs = subAgents.map((one) => one.run(this.#turn.resumed(one.#place.threadId)));
    const [ends, held] = await Promise.all([Promise.all(runs), tools]);
    await this.#takeSlot();
    return { ends, held };
  }

  /** The end of a thread that has open calls, its own or those of its sub-agents `threads`. */
  #open<S extends 'waiting' | 'continue'>(
    status: S,
    pending: PendingCall[],
    threads: OpenThread[],
  ): { status: S } & Required<Waiting> {
    return {
      status,
      pending,
      threads: this.#agent ? [{ ...this.#agent, ...progressOf(this.state) }, ...threads] : threads,
    };
  }

  /** The root agent runs alone, or waits for its sub-agents. */
  async #takeSlot(): Promise<void> {
    if (this.#agent) await this.#turn.slots.acquire();
  }

  #leaveSlot(): void {
    if (this.#agent) this.#turn.slots.release();
  }

  /** Undefined if the model was not called yet: it is to be called after a sign-in, or the conversation was compacted. */
  async #callModel(): Promise<
    { message: ModelMessage; stamp: string; started: SubAgent[] } | ThreadResult | undefined
  > {
    const { turnId, sessionId, previousTurnId, sequence, agents, budget } = this.#turn.start;
    const { actions } = this.#turn;
    const isBegunByStart = this.#isBegunByStart;
    const { refused, steps } = this.state;
    const step = steps + 1;
    const isFirst = !this.#agent && step === 1;
    const plan = this.#plan(isFirst);
    const now = Date.now();
    const left = actions.budget.left(now);
    const idleMs = actions.budget.idleUntil(now);
    const count = this.#agent ? undefined : this.#modelCalls + 1;
    const input: CallModelInput = {
      turnId,
      sessionId,
      ...this.#place,
      ...plan,
      previousTurnId,
      sequence,
      step,
      ...this.next,
      ...this.#turn.run,
      ...(count !== undefined && count >= this.#turn.start.limits.iterations && { isLast: true }),
      ...(actions.isForced ? { isForced: true } : actions.limits.forcing({ count, isBegunByStart }, now)),
      ...(left && { left }),
      ...(budget?.scope === 'session' && { sessionLimit: budget.limit }),
      ...(idleMs > 0 && { idleMs }),
      ...(this.#agent && { subAgent: inputOf(this.#agent, refused) }),
      ...(agents && { agents }),
      ...(isFirst && isSmall(this.#turn.start) && { start: this.#turn.start }),
    };
    const id = this.#turn.scheduled({ name: 'callModel', input });
    let result: CallModelResult;
    speculation.modelCalled(input.messageId);
    try {
      result = await callModel(input);
    } catch (error) {
      this.#turn.ended(id, { error });
      if (isCancellation(error)) return { status: 'stopped' };
      return this.#agent ? { status: 'done' } : { status: 'error', message: errorMessage(causeOf(error)) };
    }
    this.#turn.ended(id, { result });
    const { outcome, records, stamp } = result;
    const started = records.flatMap((record) => (record.kind === 'thread.created' ? [record.thread] : []));
    if (outcome.status === 'cancelled') return { status: 'stopped' };
    if (outcome.status === 'compacted' || outcome.status === 'budget_reached') return undefined;
    if (outcome.status === 'sign_in_required') return actions.waits ? undefined : this.#open('waiting', [], []);
    if (records.some(({ kind }) => kind === 'thread.done')) return { status: 'done' };
    if (outcome.status === 'error') return outcome;
    const message = records.find((record) => record.kind === 'model.message');
    if (!message) throw new Error('callModel returned no message');
    const mayBeCutOff = outcome.status === 'answered' && outcome.mayBeCutOff;
    if (message.finishReason === 'length' && !mayBeCutOff) return { status: 'error', message: LENGTH_REACHED };
    const isAnswer = message.toolCalls.length === 0 || input.isForced === true;
    const isDone = isAnswer && !isMisfit(message);
    return isDone ? { status: 'done' } : { message, stamp, started };
  }

  #plan(isFirst: boolean): MessagePlan {
    const { start, ordinal } = this.#turn;
    const mayStart = this.#turn.startable(this.#agent?.depth ?? 0);
    const { planned, refused, steps } = this.state;
    if (isFirst && startsWithModelCall(start)) return { ...firstCallOf(start), upTo: ordinal };
    const { threadId } = this.#place;
    // Readers may have been shown the beginning of a message that is planned again.
    const { messageId, createdAt } = planned ?? { messageId: newMessageId(), createdAt: new Date().toISOString() };
    // After a sign-in the log says which servers are connected now.
    const connectsServers = !this.#agent && refused === steps && refused > 0;
    return {
      threadId,
      messageId,
      createdAt,
      upTo: ordinal,
      ...(connectsServers && { connectsServers }),
      ...(mayStart > 0 && { mayStart }),
    };
  }

  /** Runs calls of a turn that ends when it needs answers. Returns those that wait behind others, such as `pending`. */
  async #callTools(calls: ReadyCall[], pending: PendingCall[]): Promise<ReadyCall[]> {
    const waiting = [...calls];
    const running = new Set<ReadyCall>();
    const isStopped = () => this.#turn.stopped() || this.#hasFailed;
    // What runs may be what holds the others.
    const isOver = () => isStopped() || waiting.length === 0 || (next() === undefined && running.size === 0);
    const next = () => {
      const held = heldCalls([...waiting, ...running, ...pending, ...this.#asking, ...this.#unexecuted]);
      return waiting.find((call) => !held.has(call));
    };
    const lane = async (): Promise<void> => {
      while (waiting.length > 0) {
        await this.#turn.untilMayBegin();
        if (isOver()) return;
        const call = next();
        if (call) {
          waiting.splice(waiting.indexOf(call), 1);
          running.add(call);
          await this.#callTool(call);
          running.delete(call);
        } else {
          await CancellationScope.nonCancellable(() => condition(() => isOver() || next() !== undefined));
        }
      }
    };
    const inSequence = this.#turn.start.callsInSequence;
    const lanes = toolLanes({ isSubAgent: this.#agent !== undefined, inSequence });
    await Promise.all(calls.slice(0, lanes).map(lane));
    return waiting;
  }

  /**
   * Runs `ready` calls, and the others of the thread's last message as they are allowed, until none of them waits any
   * more. Returns with calls waiting if the turn stops or should continue as new: those of `ready` that others hold.
   */
  async #callToolsAsAllowed(ready: ReadyCall[]): Promise<ReadyCall[]> {
    const { actions, stopped } = this.#turn;
    const { threadId } = this.#place;
    const waiting = [...ready];
    const started = new Set<string>();
    const running = new Set<ReadyCall>();
    // A forced answer settles the calls that are behind those that wait.
    const stillWaiting = () => waiting.filter(({ toolCallId }) => !actions.isSettled({ threadId, toolCallId }));
    const todo = () => [
      ...stillWaiting(),
      ...actions.allowed(threadId).filter(({ toolCallId }) => !started.has(toolCallId)),
    ];
    const next = () => {
      const calls = todo();
      // An allowed call is among the open ones, too: the first of the two counts.
      const open = actions.open.filter((call) => call.threadId === threadId);
      const held = heldCalls([...calls, ...running, ...open]);
      return calls.find((call) => !held.has(call));
    };
    // What runs may be what holds the others.
    const isHeld = () => running.size > 0 && todo().length > 0;
    const isOver = () =>
      stopped() ||
      this.#hasFailed ||
      (next() === undefined && !isHeld() && (!actions.isWaiting(threadId) || workflowInfo().continueAsNewSuggested));
    const lane = async (): Promise<void> => {
      while (!isOver()) {
        const call = this.#turn.mayBegin ? next() : undefined;
        if (call) {
          if (waiting.includes(call)) waiting.splice(waiting.indexOf(call), 1);
          started.add(call.toolCallId);
          running.add(call);
          await this.#callTool(call);
          running.delete(call);
          // A call that asks the user is allowed again by the answer, one that needs a sign-in by its end.
          if (actions.isUnfinished({ ...call, threadId })) started.delete(call.toolCallId);
        } else {
          await CancellationScope.nonCancellable(() =>
            condition(() => isOver() || (this.#turn.mayBegin && next() !== undefined)),
          );
        }
      }
    };
    // In a turn that waits, a sub-agent has as many lanes as the root agent.
    const lanes = toolLanes({ isSubAgent: false, inSequence: !this.#agent && this.#turn.start.callsInSequence });
    await Promise.all(Array.from({ length: lanes }, lane));
    return stillWaiting();
  }

  /**
   * Runs a call until it has a result, or waits for the user. Never throws: every outcome of a tool is in the log and in
   * the next request to the model.
   */
  async #callTool(call: ReadyCall): Promise<void> {
    let { waiting, isAsked } = await this.#runTool(call);
    while (waiting && !isAsked && !this.#ask(waiting)) {
      const { elicitation } = waiting;
      const answered = elicitation && { elicitation, content: CANCELLED_ANSWER };
      await this.#turn.untilMayBegin();
      if (this.#turn.stopped()) return;
      ({ waiting, isAsked } = await this.#runTool({ ...call, ...(answered && { answered }) }));
    }
  }

  /** Has the turn end with a question to a person. False if the turn waits for its answers, or asks too many. */
  #ask(pending: PendingCall): boolean {
    const isAllowed = !isLimited(pending) || this.#asking.length < MAX_ASKING;
    return !this.#turn.actions.waits && isAllowed && this.#asking.push(pending) > 0;
  }

  /** Notes the call if it waits for a sign-in. */
  async #runTool(ready: ReadyCall): Promise<Ended> {
    const { toolCallId, source, edited, answered, signInId, repeats, policy, requesters } = ready;
    const { turnId, sessionId, limits, carry, input, resumes } = this.#turn.start;
    const { threadId } = this.#place;
    const keptOpenBy = source.run?.effect === 'once' ? answered?.elicitation.keptOpenBy : undefined;
    const { callTool } = proxyActivities<Pick<Activities, 'callTool'>>({
      // The activity itself ends a call that takes too long, and needs time to return that.
      startToCloseTimeout: (limits.toolSeconds + 60) * 1000,
      cancellationType,
      ...(source.run?.effect === 'retry'
        ? // Considering its worker dead too early costs little. The activity counts failures and lost workers.
          { heartbeatTimeout: HEARTBEAT_TIMEOUT, retry: { maximumInterval: '30 seconds' } }
        : // A tool with effects that is not declared repeatable runs at most once, also if its worker is lost.
          { heartbeatTimeout: limits.toolHeartbeatSeconds * 1000, retry: { maximumAttempts: 1 } }),
      // Only the process that keeps a call open can continue it; a repeatable one is repeated by any other.
      ...(keptOpenBy && { taskQueue: keptOpenBy, scheduleToStartTimeout: KEPT_OPEN_TIMEOUT }),
    });
    // A turn repeats its own requests.
    const isResumed = carry === undefined && resumes.some((one) => callKey(one) === callKey({ threadId, toolCallId }));
    const mayRepeat = !isResumed || mayRepeatSignIns(input);
    const signIn = signInId !== undefined && { signIn: { id: signInId, mayRepeat } };
    const onReplaced = onReplacedOf(ready);
    const asksIfUnknown = source.run?.effect === 'once' && this.#turn.mayAskIfUnknown;
    const call = {
      threadId,
      toolCallId,
      source,
      ...(edited && { edited }),
      ...signIn,
      ...(answered && { answered }),
      ...(repeats && { repeats }),
      ...(asksIfUnknown && { onUnknown: { ...(policy && { policy }), ...(requesters && { requesters }) } }),
      ...(onReplaced && { onReplaced }),
    };
    const toolInput = { turnId, sessionId, ...this.#place, ...call, ...this.#turn.run };
    const id = this.#turn.scheduled({ name: 'callTool', input: toolInput });
    let result: CallToolResult;
    try {
      result = await callTool(toolInput);
    } catch (error) {
      return this.#turn.ended(id, { error });
    }
    const ended = this.#turn.ended(id, { result });
    for (const record of result.records) {
      if (record.kind === 'mcp.auth_required' && !this.#turn.actions.waits) this.#unexecuted.push(...record.calls);
    }
    return ended;
  }

  /** Whether a call has no result, and the turn is to end because of that. */
  get #hasFailed(): boolean {
    if (this.#agent || !this.#turn.start.failsWithTools) return false;
    return this.state.lacksResult || this.#turn.actions.lacksResult(this.#place.threadId);
  }

  async #connectTools(): Promise<void> {
    const { turnId, sessionId } = this.#turn.start;
    const input = { turnId, sessionId, ...this.#place, ...this.#turn.run };
    const id = this.#turn.scheduled({ name: 'connectTools', input });
    let end: Parameters<TurnScope['ended']>[1];
    try {
      end = { result: await connectTools(input) };
    } catch (error) {
      // The turn continues: each model call loads the tools itself, and its prompt lists the unavailable servers.
      end = { error };
    }
    this.#turn.ended(id, end);
  }
}

const NO_RESULT = 'A tool call has no result.';

const LENGTH_REACHED = 'The model stopped at its limit of output tokens (finish_reason: length).';

/** @param refused how many of its steps do not count against its limit */
function inputOf(agent: SubAgent, refused: number): NonNullable<CallModelInput['subAgent']> {
  const { title, parent, depth, agent: name, isRegistered, draftRoles, model, iterations } = agent;
  return {
    title,
    parent,
    depth,
    iterations: iterations + refused,
    ...(name !== undefined && { agent: name }),
    ...(isRegistered && { isRegistered }),
    ...(draftRoles && { draftRoles }),
    ...(model !== undefined && { model }),
  };
}

/** In a workflow `Date.now` and `Math.random` are deterministic: a replay mints the same ids. */
function newMessageId(): string {
  return ulid('msg', Date.now(), () => Math.floor(Math.random() * DIGITS));
}

/** Whether a start is small enough to be in the history twice. */
function isSmall(start: TurnStart): boolean {
  return JSON.stringify(start).length <= 4096;
}
