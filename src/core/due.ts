import { isUnanswered, runsInSandbox, type Call } from './call.ts';
import { isCode, openCells, type OpenCell } from './code-threads.ts';
import { endingOf } from './tasks.ts';
import { startsWithModelCall, type Turn } from './turn.ts';
import { ROOT_THREAD } from './records/threads.ts';
import type { TurnError } from './records/turn.ts';
import { countedSteps, hasMadeAllRounds, waitingIn, type Thread, type ThreadEnd } from './threads.ts';
import { toolLanes } from './tool-lanes.ts';
import { callKey } from './tool-records.ts';
import type { TurnActions } from './turn-actions.ts';
import type { ThreadResult } from './turn-result.ts';

/** What a turn can begin. */
export type Work =
  | { name: 'connectTools' | 'callModel'; threadId: string }
  | { name: 'callTool'; call: Call }
  /** The calls of the thread run where the sandbox of the session is. */
  | { name: 'openSandbox'; threadId: string }
  /** The cell of the thread resumes, or its host checks that it still waits. */
  | { name: 'resumeCell'; threadId: string }
  /** The agent that works on calls of the turn in this session is forced to answer. */
  | { name: 'forceDelegate'; sessionId: string }
  | Interruption;

/**
 * A cell is interrupted: on its host if it runs there, or by cancelling a tool that it has called. `key` identifies the
 * running piece or call.
 */
type Interruption =
  | { name: 'interruptCell' | 'cancelCall'; key: string; call: Call }
  /** The turn is held: the host begins no further calls in this piece of the cell. */
  | { name: 'holdCell'; key: string; call: Call; piece: number };

/** The state outside the log of a turn that, together with the log, decides what the turn begins. */
export interface RunState {
  /** It ends: it was cancelled, its time is up, its budget was reached, or an expired approval ends it. */
  isStopping: boolean;
  /** It is to continue as new once nothing runs. */
  isDraining: boolean;
  /** The sessions in which answers were forced. */
  forced: ReadonlySet<string>;
  /** The keys of the interruptions that have begun. */
  interrupted: ReadonlySet<string>;
  /** The turn has worked for so long that it is to answer. */
  isTimeUp: boolean;
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

  /** The sub-agents in `working` that have a slot. A sub-agent without work has left its slot to the next one. */
  of(working: readonly string[]): ReadonlySet<string> {
    const before = this.#working.filter((threadId) => working.includes(threadId));
    this.#working = [...before, ...working.filter((threadId) => !before.includes(threadId))];
    return new Set(this.#working.slice(0, this.#count));
  }
}

/**
 * Where a thread is in its round. It connects to its servers, calls its model, runs the calls of the message, and calls
 * its model again, until a message is its answer. In between it waits: for answers to its calls, for its sub-agents, or
 * for what its next model call needs.
 *
 * | phase            | what happens                                          | in a run that drains       |
 * | ---------------- | ----------------------------------------------------- | -------------------------- |
 * | `toConnect`      | it connects to its servers next                       | the same, unless it is held |
 * | `connecting`     | it connects                                           |                            |
 * | `toCall`         | it calls its model next                               | it continues as new        |
 * | `calling`        | its model is called                                   |                            |
 * | `runningTools`   | its calls run, and those that are ready begin         | the same, unless it is held |
 * | `asking`         | calls wait for a person, a client or another session  | it continues as new        |
 * | `awaitingAgents` | its sub-agents have the last of its calls             | if a sub-agent does        |
 * | `awaitingModel`  | a sign-in, a refresh or the hold of the turn must end | it continues as new        |
 *
 * The other phases are the ends of a thread.
 */
type Phase =
  | { status: 'toConnect' | 'connecting' | 'toCall' | 'calling' | 'asking' | 'awaitingAgents' | 'awaitingModel' }
  | { status: 'runningTools'; ready: Call[] }
  | ThreadEnd;

/** The state of a turn that both its workflow and the readers of its log have. */
interface TurnState extends Pick<
  Turn,
  'subAgents' | 'thread' | 'running' | 'sandboxHost' | 'endsByDenial' | 'knowsOutput'
> {
  start: NonNullable<Turn['start']>;
  actions: TurnActions;
}

type StartedTurn = Pick<Turn, 'start' | 'actions'> & Omit<TurnState, 'start' | 'actions'>;

/**
 * The work that a turn begins now: threads in the order in which the turn has started them, calls in the order of their
 * message. To be called once per task, because it assigns the slots.
 */
export function due(turn: StartedTurn, run: RunState): Work[] {
  if (!hasStarted(turn) || run.isStopping) return [];
  const { actions } = turn;
  const forced = actions.isForced
    ? actions.delegations.started.filter(({ sessionId }) => !run.forced.has(sessionId))
    : [];
  const delegates = [...new Set(forced.map(({ sessionId }) => sessionId))].map((sessionId): Work => {
    return { name: 'forceDelegate', sessionId };
  });
  const controls = [...delegates, ...interruptions(turn, run), ...holds(turn, run)];
  const threads = [ROOT_THREAD, ...turn.subAgents.map(({ threadId }) => threadId)].map((threadId) => {
    return { threadId, phase: phaseOf(turn, threadId) };
  });
  const [root, ...subAgents] = threads;
  const mode = modeOf(turn, run);
  const ofCode = new Set(subAgents.flatMap(({ threadId }) => (isCode(turn.thread(threadId)) ? [threadId] : [])));
  const working = subAgents.filter(({ threadId, phase }) => !ofCode.has(threadId) && isWorking(phase, mode));
  const slots = run.slots.of(working.map(({ threadId }) => threadId));
  if (mode.isHeld) return controls;
  // The sub-agents that a turn resumes begin when its servers are connected.
  const isConnecting = root?.phase.status === 'connecting' || root?.phase.status === 'toConnect';
  const begins = threads.filter(
    ({ threadId }) => threadId === ROOT_THREAD || ((ofCode.has(threadId) || slots.has(threadId)) && !isConnecting),
  );
  const work = begins.flatMap(({ threadId, phase }) => workIn(turn, mode, threadId, phase));
  // One activity opens the sandbox for all threads.
  const opening = work.find(({ name }) => name === 'openSandbox');
  return [...controls, ...work.filter((one) => one.name !== 'openSandbox' || one === opening)];
}

/** When running code is interrupted because the turn is to answer: milliseconds since 1970. */
export function interruptsAt(
  turn: StartedTurn,
  run: Pick<RunState, 'interrupted' | 'isStopping'>,
  now: number,
): number | undefined {
  // A turn that is stopping begins nothing: see `due`.
  if (run.isStopping || !hasStarted(turn)) return undefined;
  const { start, actions } = turn;
  if (start.limits.answerAfterSeconds === undefined || actions.isPaused) return undefined;
  return interruptions(turn, { ...run, isTimeUp: true }).length > 0 ? actions.limits.answersAt(now) : undefined;
}

/**
 * What is to be interrupted now, and was not: cells that a client has interrupted, and all running cells of a turn that
 * is to answer. If the time limit forces the answer, tools that code has called run to their end before it.
 */
function interruptions(
  turn: TurnState,
  { interrupted, isTimeUp }: Pick<RunState, 'interrupted' | 'isTimeUp'>,
): Interruption[] {
  return openCells(turn.actions.threads).flatMap((open): Interruption[] => {
    const { call, code } = open;
    const isEnding = call.isInterrupted === true || turn.actions.isForced;
    if (!isEnding && !isTimeUp) return [];
    const isOnHost = code !== undefined && runsOnHost(turn, code);
    const key = pieceKey(open);
    const cell: Interruption[] = !code || isOnHost ? [{ name: 'interruptCell', key, call }] : [];
    const tools = [...(code?.calls.values() ?? [])].filter(({ state }) => isEnding && !isOnHost && state === 'running');
    const all = [...cell, ...tools.map((one): Interruption => ({ name: 'cancelCall', key: callKey(one), call: one }))];
    return all.filter((one) => !interrupted.has(one.key));
  });
}

/** The cells that run while the turn is held: their hosts must be notified, since they begin calls themselves. */
function holds(turn: TurnState, { interrupted }: Pick<RunState, 'interrupted'>): Interruption[] {
  if (!turn.actions.isHeld) return [];
  return openCells(turn.actions.threads).flatMap((cell): Interruption[] => {
    const { call, code } = cell;
    const key = `hold ${pieceKey(cell)}`;
    if (call.isInterrupted || interrupted.has(key) || (code && !runsOnHost(turn, code))) return [];
    return [{ name: 'holdCell', key, call, piece: code?.steps ?? 0 }];
  });
}

function runsOnHost(turn: TurnState, { agent }: Thread): boolean {
  const running = agent ? turn.running(agent.threadId) : [];
  return running.some(({ name, input }) => name === 'resumeCell' && !input.isCheck && !input.isInterrupted);
}

function pieceKey({ call, code }: OpenCell): string {
  return [callKey(call), call.lostHosts ?? 0, code?.steps ?? 0].join(' ');
}

/** How a Temporal run of a turn ends now; undefined as long as it continues. */
export function endOf(turn: StartedTurn, run: Pick<RunState, 'isStopping' | 'isDraining'>): ThreadResult | undefined {
  if (!hasStarted(turn) || turn.running().length > 0) return undefined;
  const stopped = (): ThreadEnd => turn.thread(ROOT_THREAD).end ?? { status: 'stopped' };
  const end = run.isStopping ? stopped() : runEndOf(turn, modeOf(turn, run), ROOT_THREAD);
  return end?.status === 'waiting' ? { ...end, ...waitingIn(turn.actions.threads) } : end;
}

/** What a run no longer begins. `isHeld`: any calls; `isDraining`: model calls, until it continues as new. */
interface Mode {
  isHeld: boolean;
  isDraining: boolean;
}

/** The call that the start of a turn has begun is made in any case: readers may have seen its message. */
function modeOf(turn: TurnState, { isDraining }: Pick<RunState, 'isDraining'>): Mode {
  const isBegun = isBegunByStart(turn);
  return { isHeld: turn.actions.isHeld && !isBegun, isDraining: isDraining && !isBegun };
}

/** How a thread's part of a run ends; undefined while the thread or one of its sub-agents works or waits in it. */
function runEndOf(turn: TurnState, mode: Mode, threadId: string): ThreadEnd | { status: 'continue' } | undefined {
  const phase = phaseOf(turn, threadId);
  if (isWorking(phase, mode)) return undefined;
  const own = endIn(phase, mode, turn.actions.waits);
  const subAgents = turn.subAgents.filter(({ parent }) => parent.threadId === threadId);
  const below = subAgents.map((agent) => runEndOf(turn, mode, agent.threadId));
  if (below.includes(undefined)) return undefined;
  const one = (status: string) => below.find((end) => end?.status === status);
  return one('stopped') ?? (own?.status === 'error' ? own : undefined) ?? one('continue') ?? own;
}

/** How an idle thread's part of a run ends; undefined if it waits for something that will reach this run. */
function endIn(phase: Phase, { isDraining }: Mode, waits: boolean): ThreadEnd | { status: 'continue' } | undefined {
  const continued = isDraining ? ({ status: 'continue' } as const) : undefined;
  switch (phase.status) {
    case 'done':
    case 'waiting':
    case 'stopped':
    case 'error':
      return phase;
    case 'awaitingAgents':
      return { status: 'waiting' };
    case 'asking':
      return waits ? continued : { status: 'waiting' };
    case 'toConnect':
    case 'connecting':
    case 'toCall':
    case 'calling':
    case 'runningTools':
    case 'awaitingModel':
      return continued;
  }
}

/** Whether a thread does something, or begins something before the run may continue as new. */
function isWorking({ status }: Phase, { isHeld, isDraining }: Mode): boolean {
  if (status === 'connecting' || status === 'calling') return true;
  if (status === 'toCall') return !isDraining;
  return (status === 'toConnect' || status === 'runningTools') && !(isHeld && isDraining);
}

function workIn(turn: TurnState, { isDraining }: Mode, threadId: string, phase: Phase): Work[] {
  const { start, actions, sandboxHost } = turn;
  if (phase.status === 'runningTools') {
    const isSubAgent = threadId !== ROOT_THREAD && !isCode(turn.thread(threadId));
    const lanes = toolLanes({ isSubAgent, inSequence: start.callsInSequence });
    const free = Math.max(0, lanes - actions.working(threadId).running.length);
    const next = phase.ready.slice(0, free);
    if (sandboxHost !== undefined || !next.some(runsInSandbox)) return next.map(toolWork);
    return [...sandboxWork(turn, threadId), ...next.filter((call) => !runsInSandbox(call)).map(toolWork)];
  }
  const isCalled = phase.status === 'toCall' && !isDraining;
  if (isCode(turn.thread(threadId))) {
    if (!isCalled && phase.status !== 'toConnect') return [];
    return sandboxHost === undefined ? sandboxWork(turn, threadId) : [{ name: 'resumeCell', threadId }];
  }
  if (phase.status === 'toConnect') return [{ name: 'connectTools', threadId }];
  return isCalled ? [{ name: 'callModel', threadId }] : [];
}

function sandboxWork(turn: TurnState, threadId: string): Work[] {
  const isOpening = turn.running().some(({ name }) => name === 'openSandbox');
  return isOpening ? [] : [{ name: 'openSandbox', threadId }];
}

function toolWork(call: Call): Work {
  return { name: 'callTool', call };
}

/** The phase of a thread by what it does itself. */
function phaseOf(turn: TurnState, threadId: string): Phase {
  const { actions, start } = turn;
  const { end } = turn.thread(threadId);
  for (const { name } of turn.running(threadId)) {
    if (name === 'callModel' || name === 'resumeCell') return { status: 'calling' };
    if (name === 'connectTools') return { status: 'connecting' };
  }
  if (isCode(turn.thread(threadId))) return phaseOfCode(turn, threadId);
  if (end && !(end.status === 'done' && isSteered(turn, threadId))) return end;
  if (connectsFirst(turn, threadId)) return { status: 'toConnect' };
  const { running, ready } = actions.working(threadId);
  if (running.length > 0 || ready.length > 0) return { status: 'runningTools', ready };
  if (threadId === ROOT_THREAD && actions.hasFailed) {
    return { status: 'error', message: 'A tool call has no result.', code: 'tool_failed' };
  }
  // Its last message may be in an earlier turn, or in an earlier run.
  if (threadId === ROOT_THREAD && turn.endsByDenial) return { status: turn.knowsOutput ? 'done' : 'toCall' };
  const open = actions.unsettled(threadId);
  const ending = endingOf(turn.thread(threadId), start);
  // Its code reads the denial, and may clean up.
  if (ending === 'denial' && open.every(({ state }) => state !== 'delegated')) return { status: 'toCall' };
  const isOfAgent = (call: Call) => turn.subAgents.some(({ parent }) => callKey(parent) === callKey(call));
  if (open.length > 0) return { status: open.every(isOfAgent) ? 'awaitingAgents' : 'asking' };
  if (threadId === ROOT_THREAD && hasMadeAllRounds(turn.thread(threadId), start.limits)) return { status: 'done' };
  if (ending) return { status: 'toCall' };
  if (actions.isModelAwaited(threadId)) return { status: 'awaitingModel' };
  if (!isAtLimit(turn, threadId)) return { status: 'toCall' };
  // The hold may end with a message to the turn, or with a higher budget.
  return actions.isHeld ? { status: 'awaitingModel' } : limitReached(start.limits.iterations);
}

/** A thread of code calls tools, and then resumes with their results. */
function phaseOfCode(turn: TurnState, threadId: string): Phase {
  const { actions } = turn;
  const { isConnected } = turn.thread(threadId);
  const { running, ready } = actions.working(threadId);
  if (running.length === 0 && ready.length > 0 && !isConnected) return { status: 'toConnect' };
  if (running.length > 0 || ready.length > 0) return { status: 'runningTools', ready };
  return { status: actions.unsettled(threadId).some(isUnanswered) ? 'asking' : 'toCall' };
}

/** Whether a thread connects to its servers before anything else; otherwise its model calls do that. */
function connectsFirst(turn: TurnState, threadId: string): boolean {
  const { start } = turn;
  const { isConnected, steps, planned, agent } = turn.thread(threadId);
  if (isConnected || steps > 0) return false;
  // A dynamic sub-agent uses its parent's servers.
  if (agent) return agent.agent !== undefined && agent.hasServers;
  return start.hasServers && !startsWithModelCall(start) && !planned;
}

/** Whether the next model call of the root agent is the one that the start of the turn has begun. */
export function isBegunByStart(turn: Pick<StartedTurn, 'start' | 'thread'>): boolean {
  const { steps, planned } = turn.thread(ROOT_THREAD);
  return turn.start !== undefined && startsWithModelCall(turn.start) && steps === 0 && !planned;
}

/**
 * Whether the turn continues in order to answer messages that the model has not read. At its limit of model calls it
 * ends instead, and leaves them to the next turn, like messages that arrive after any other end.
 */
function isSteered(turn: TurnState, threadId: string): boolean {
  if (threadId !== ROOT_THREAD || !turn.actions.steering.hasUnread) return false;
  return !isAtLimit(turn, threadId) && !hasMadeAllRounds(turn.thread(threadId), turn.start.limits);
}

/** False for a turn that answers at its limit: later calls are forced, to repair the answer or answer late messages. */
function isAtLimit(turn: TurnState, threadId: string): boolean {
  const { iterations, answersAtIterations } = turn.start.limits;
  return threadId === ROOT_THREAD && !answersAtIterations && countedSteps(turn.thread(threadId)) >= iterations;
}

function limitReached(iterations: number): TurnError {
  const message = `The turn reached its iteration limit of ${iterations} model calls.`;
  return { status: 'error', message, code: 'iteration_limit' };
}

function hasStarted(turn: StartedTurn): turn is StartedTurn & TurnState {
  return turn.start !== undefined && turn.actions !== undefined;
}
