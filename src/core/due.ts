import { heldCalls } from './call-order.ts';
import { startsWithModelCall, type TurnProjection } from './projection.ts';
import { ROOT_THREAD, type OpenThread, type PendingCall, type TurnError, type Waiting } from './records.ts';
import { countedSteps, progressOf, type ThreadEnd } from './thread-state.ts';
import { heldCall } from './tool-records.ts';
import { toolLanes } from './tool-lanes.ts';
import { hasBeenAsked, isUnanswered, placed, readyCall, type ReadyCall } from './tracked-call.ts';
import type { TurnActions } from './turn-actions.ts';
import type { ThreadResult } from './turn-result.ts';

/** What a turn can begin. */
export type Work =
  | { name: 'connectTools' | 'callModel'; threadId: string }
  | { name: 'callTool'; threadId: string; call: ReadyCall }
  /** The agent that works in this session on calls of the turn is to answer. */
  | { name: 'forceDelegate'; sessionId: string };

/** What decides with the log of a turn what it begins, and is not in the log. */
export interface Run {
  /** It ends: it was cancelled, its time is up, its budget was reached, or an approval has expired that ends it. */
  isStopping: boolean;
  /** It is to continue as new once nothing runs. */
  isDraining: boolean;
  /** The sessions in which answers were forced. */
  forced: ReadonlySet<string>;
  slots: Slots;
}

/** How many sub-agents of a turn work at once. */
export class Slots {
  readonly #count: number;
  /** The sub-agents that have something to do, in the order in which they got it. */
  #working: string[] = [];

  constructor(count: number) {
    this.#count = count;
  }

  /** Those of `working` that have a slot: one without anything to do has left its own to the next. */
  of(working: readonly string[]): ReadonlySet<string> {
    const before = this.#working.filter((threadId) => working.includes(threadId));
    this.#working = [...before, ...working.filter((threadId) => !before.includes(threadId))];
    return new Set(this.#working.slice(0, this.#count));
  }
}

/**
 * The phase of a thread: it works, and begins `work` next; without work and not active, it waits for what this run will
 * be told. The other phases are its ends in this run.
 */
type Phase = { status: 'works'; work: Work[]; isActive: boolean } | ThreadEnd | { status: 'continue' };

type TurnState = Pick<TurnProjection, 'start' | 'actions' | 'threads' | 'thread' | 'running'>;

const BUSY: Phase = { status: 'works', work: [], isActive: true };
const WAITING: Phase = { status: 'works', work: [], isActive: false };

/**
 * What a turn begins now: threads in the order in which the run has learnt of them, calls in that of their message. Once
 * per task: it hands out the slots.
 */
export function due(turn: TurnState, run: Run): Work[] {
  const { actions, start } = turn;
  if (!actions || !start || run.isStopping) return [];
  const forced = actions.isForced ? actions.delegated.filter(({ sessionId }) => !run.forced.has(sessionId)) : [];
  const delegates = [...new Set(forced.map(({ sessionId }) => sessionId))].map((sessionId): Work => {
    return { name: 'forceDelegate', sessionId };
  });
  const phases = [ROOT_THREAD, ...turn.threads.map(({ threadId }) => threadId)].map((threadId) => {
    return { threadId, phase: phaseOf(turn, run, threadId) };
  });
  const active = phases.filter(({ phase }) => phase.status === 'works' && phase.isActive);
  const slots = run.slots.of(active.map(({ threadId }) => threadId).filter((threadId) => threadId !== ROOT_THREAD));
  // Readers may have seen the answer to the call with which a turn starts: it waits for nothing.
  if (actions.isHeld && !isBegunByStart(turn)) return delegates;
  // The sub-agents that a turn resumes begin when its servers are connected.
  const isConnecting = turn.running(ROOT_THREAD).some(({ name }) => name === 'connectTools');
  const isFirst = isConnecting || (!run.isDraining && connectsFirst(turn, ROOT_THREAD));
  const begins = isFirst ? phases.slice(0, 1) : phases;
  const own = begins.flatMap(({ threadId, phase }) => {
    return phase.status === 'works' && (threadId === ROOT_THREAD || slots.has(threadId)) ? phase.work : [];
  });
  return [...delegates, ...own];
}

/** How a run of a turn ends now; undefined as long as it runs. */
export function endOf(turn: TurnState, run: Pick<Run, 'isStopping' | 'isDraining'>): ThreadResult | undefined {
  if (turn.running().length > 0) return undefined;
  const end = run.isStopping
    ? (turn.thread(ROOT_THREAD).end ?? ({ status: 'stopped' } as const))
    : phaseWithSubAgents(turn, run, ROOT_THREAD);
  switch (end.status) {
    case 'works':
      return undefined;
    case 'waiting':
    case 'continue':
      return { status: end.status, ...openOf(turn) };
    case 'done':
    case 'stopped':
    case 'error':
      return end;
  }
}

/** The phase of a thread with its sub-agents: it continues when they have ended. */
function phaseWithSubAgents(turn: TurnState, run: Pick<Run, 'isDraining'>, threadId: string): Phase {
  const own = phaseOf(turn, run, threadId);
  if (own.status === 'works' && own.isActive) return own;
  const below = subAgentsOf(turn, threadId).map((agent) => phaseWithSubAgents(turn, run, agent.threadId));
  const one = (status: Phase['status']): Phase | undefined => below.find((phase) => phase.status === status);
  return one('works') ?? one('stopped') ?? (own.status === 'error' ? own : undefined) ?? one('continue') ?? own;
}

/** The phase of a thread by what it does itself. */
function phaseOf(turn: TurnState, { isDraining }: Pick<Run, 'isDraining'>, threadId: string): Phase {
  const { actions, start } = turn;
  if (!actions || !start) throw new Error('a turn that has not started has no threads');
  const running = turn.running(threadId);
  if (running.some(({ name }) => name !== 'callTool')) return BUSY;
  const { end } = turn.thread(threadId);
  if (end && !(end.status === 'done' && isSteered(turn, threadId))) return end;
  if (!isDraining && connectsFirst(turn, threadId)) return works({ name: 'connectTools', threadId });
  // A forced answer leaves none of its calls to run.
  const open = end ? [] : actions.unsettled(threadId);
  const hasFailed = threadId === ROOT_THREAD && actions.hasFailed;
  const calls = hasFailed ? [] : readyOf(turn, threadId, open);
  if (calls.length > 0 || running.length > 0) {
    const lanes = toolLanes({ isSubAgent: threadId !== ROOT_THREAD, inSequence: start.callsInSequence });
    const free = Math.max(0, lanes - running.length);
    return works(...calls.slice(0, free).map((call): Work => ({ name: 'callTool', threadId, call })));
  }
  if (hasFailed) return { status: 'error', message: 'A tool call has no result.', code: 'tool_failed' };
  const parents = new Set(subAgentsOf(turn, threadId).map(({ parent }) => parent.toolCallId));
  if (open.some(({ toolCallId }) => !parents.has(toolCallId))) {
    if (!actions.waits) return { status: 'waiting' };
    return isDraining ? { status: 'continue' } : WAITING;
  }
  // What a turn carries whose sub-agents wait is decided by them.
  if (open.length > 0) return { status: 'waiting' };
  if (isDraining) return { status: 'continue' };
  if (actions.isModelAwaited(threadId)) return WAITING;
  if (!isAtLimit(turn, threadId)) return works({ name: 'callModel', threadId });
  // What holds the turn may be lifted with a message to it, or a higher budget.
  return actions.isHeld ? WAITING : limitReached(start.limits.iterations);
}

function works(...work: Work[]): Phase {
  return { status: 'works', work, isActive: true };
}

/** Those of a thread's open calls that may begin: earlier ones do not hold them. */
function readyOf(turn: TurnState, threadId: string, open: ReturnType<TurnActions['unsettled']>): ReadyCall[] {
  const held = new Set([...heldCalls(open.flatMap(({ call }) => placed(call)))].map(({ call }) => call));
  const running = new Set(turn.running(threadId).map(({ name, input }) => name === 'callTool' && input.toolCallId));
  return open.flatMap(({ toolCallId, call }) => {
    return held.has(call) || running.has(toolCallId) ? [] : (readyCall(toolCallId, call) ?? []);
  });
}

/** What is open when a turn ends or continues as new; what waits in a turn that waits is in its actions. */
function openOf(turn: TurnState, threadId = ROOT_THREAD): Required<Waiting> {
  const waits = turn.actions?.waits === true;
  const own = (turn.actions?.unsettled(threadId) ?? []).flatMap(({ toolCallId, call }): PendingCall[] => {
    if (isUnanswered(call)) return call.pending && !waits ? [call.pending] : [];
    const ready = call.state === 'running' ? readyCall(toolCallId, call) : undefined;
    return ready ? [heldCall({ ...ready, threadId })] : [];
  });
  const below = subAgentsOf(turn, threadId).map((agent) => {
    const { pending, threads } = openOf(turn, agent.threadId);
    const thread: OpenThread = { ...agent, ...progressOf(turn.thread(agent.threadId)) };
    return { pending, threads: [thread, ...threads] };
  });
  return {
    pending: [...own.toSorted((a, b) => rank(a) - rank(b)), ...below.flatMap(({ pending }) => pending)],
    threads: below.flatMap(({ threads }) => threads),
  };
}

/** What people answer comes first: what the message asks, then what has come of its calls. */
function rank(pending: PendingCall): number {
  if (pending.needs === 'order') return 3;
  if (pending.needs === 'sign_in') return 2;
  return hasBeenAsked({ pending }) ? 1 : 0;
}

function subAgentsOf(turn: TurnState, threadId: string): TurnProjection['threads'] {
  return turn.threads.filter(({ parent }) => parent.threadId === threadId);
}

/** Whether a thread connects to its servers before anything else; otherwise its model calls do that. */
function connectsFirst(turn: TurnState, threadId: string): boolean {
  const { start } = turn;
  const { isConnected, steps, agent } = turn.thread(threadId);
  if (isConnected || !start) return false;
  // A dynamic sub-agent uses its parent's servers.
  if (agent) return agent.agent !== undefined && agent.hasServers && steps === 0;
  return !start.carry && start.hasServers && !startsWithModelCall(start);
}

/** Whether the next model call of the root agent is the one that the start of the turn has begun. */
export function isBegunByStart(turn: Pick<TurnState, 'start' | 'thread'>): boolean {
  const { start } = turn;
  const { steps, planned } = turn.thread(ROOT_THREAD);
  return start !== undefined && !start.carry && steps === 0 && !planned && startsWithModelCall(start);
}

/**
 * Whether messages have arrived that the model has not read: the turn continues, and answers them. At its limit of model
 * calls it has ended, and they are left to the next turn, as those that arrive after any other end.
 */
function isSteered(turn: TurnState, threadId: string): boolean {
  return threadId === ROOT_THREAD && turn.actions?.steering.hasUnread === true && !isAtLimit(turn, threadId);
}

/** Beyond a limit at which the turn answers, its calls are forced: they repair the answer, or answer a late message. */
function isAtLimit(turn: TurnState, threadId: string): boolean {
  const { iterations = Infinity, answersAtIterations } = turn.start?.limits ?? {};
  return threadId === ROOT_THREAD && !answersAtIterations && countedSteps(turn.thread(threadId)) >= iterations;
}

function limitReached(iterations: number): TurnError {
  const message = `The turn reached its iteration limit of ${iterations} model calls.`;
  return { status: 'error', message, code: 'iteration_limit' };
}
