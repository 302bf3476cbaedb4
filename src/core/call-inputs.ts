import { isCell, runsInSandbox, type Call } from './call.ts';
import { resumption } from './code-threads.ts';
import { isBegunByStart } from './due.ts';
import type {
  CallModelInput,
  CallToolInput,
  NextModelCall,
  ResumeCellInput,
  ScheduledBy,
  ThreadInput,
  TurnStart,
} from './history.ts';
import { constantsOf } from './model-call.ts';
import { firstCallOf, type Turn } from './turn.ts';
import type { MessagePlan, PlannedMessage } from './records/message.ts';
import { mayRepeatSignIns } from './sign-ins.ts';
import { countedSteps, type Thread } from './threads.ts';
import { endingOf } from './tasks.ts';
import { callKey, onReplacedOf } from './tool-records.ts';
import type { TurnActions } from './turn-actions.ts';

/** The parts of a running turn that determine the inputs of its activities. */
export interface RunningTurn {
  start: TurnStart;
  actions: TurnActions;
  log: Turn;
  guard: ScheduledBy;
}

/** The input of an activity that depends on nothing but its thread. */
export function threadInput(turn: RunningTurn, threadId: string): ThreadInput {
  return { ...commonInput(turn, threadId), ...turn.guard };
}

/** The input of the activity that resumes the cell of a code thread. */
export function resumeCellInput(turn: RunningTurn, threadId: string, now: number): ResumeCellInput {
  const thread = turn.log.thread(threadId);
  const { agent } = thread;
  if (!agent) throw new Error(`the thread ${threadId} is no cell's`);
  const { parent: cell } = agent;
  const call = turn.log.thread(cell.threadId).calls.get(cell.toolCallId);
  const isInterrupted = call?.isInterrupted === true || turn.actions.isForced;
  const waitedMs = turn.actions.pauses.waitedMs - thread.waitedMs;
  const common = { ...commonInput(turn, threadId), cell };
  const waited = waitedMs > 0 && { waitedMs };
  return { ...common, ...resumption(thread, { isInterrupted }), ...waited, ...callsUntil(turn, now), ...turn.guard };
}

/** How long the host of a cell may begin calls itself. */
function callsUntil({ actions }: RunningTurn, now: number): Pick<ResumeCellInput, 'callsUntilMs'> {
  const { untilMs } = actions.budget.left(now) ?? {};
  return untilMs === undefined ? {} : { callsUntilMs: untilMs };
}

interface ModelCall extends NextModelCall {
  threadId: string;
  now: number;
  /** Mints the message, unless its id is known. */
  newMessage: () => PlannedMessage;
}

/** The input of a thread's next model call. */
export function callModelInput(turn: RunningTurn, call: ModelCall): CallModelInput {
  const { start, actions, log, guard } = turn;
  const { threadId, now, recent, ofHosts } = call;
  const { turnId, sessionId, limits } = start;
  const thread = log.thread(threadId);
  const { agent } = thread;
  const step = thread.steps + 1;
  const isFirst = !agent && step === 1;
  const begins = !agent && isBegunByStart(log);
  const left = actions.budget.left(now);
  const idleMs = actions.budget.idleUntil(now);
  const calls = countedSteps(thread) + 1;
  const count = agent ? undefined : calls;
  // A command that was recorded with the start does not change the call that the start has begun.
  const isForced = actions.isForced && !begins;
  const ends = endingOf(thread, start);
  const common = { turnId, sessionId, ...planOf(turn, call), step, recent, ...(ofHosts && { ofHosts }), ...guard };
  if (ends) return { ...common, ends };
  return {
    ...common,
    // A task ends after the tools of its last call.
    ...(!agent?.isTask &&
      calls >= (agent?.iterations ?? Math.min(limits.iterations, limits.rounds ?? Infinity)) && { isLast: true }),
    ...(isForced ? { isForced } : actions.limits.forcing({ count, isBegunByStart: begins }, now)),
    ...(left && { left }),
    ...(idleMs > 0 && { idleMs }),
    ...(isFirst && isSmall(start) && { start }),
  };
}

function planOf({ start, log }: RunningTurn, { threadId, newMessage }: ModelCall): MessagePlan {
  const { ordinal: upTo } = log;
  const thread = log.thread(threadId);
  const { agent, planned } = thread;
  if (!agent && isBegunByStart(log)) return { ...firstCallOf(start), upTo };
  const mayStart = agent?.isTask ? 0 : log.startable(agent?.depth ?? 0);
  return {
    threadId,
    // Readers may have been shown the beginning of a message that is planned again.
    ...(planned ?? newMessage()),
    upTo,
    ...(connectsServers(start, thread) && { connectsServers: true }),
    ...(mayStart > 0 && { mayStart }),
  };
}

/** Whether a call records its servers: none is connected before the root agent's first message; a sign-in adds some. */
function connectsServers({ hasServers }: TurnStart, { agent, steps, refused, isConnected }: Thread): boolean {
  if (agent || !hasServers || refused !== steps) return false;
  return refused > 0 || !isConnected;
}

/** The input of a tool call. */
export function callToolInput(turn: RunningTurn, call: Call, now: number): CallToolInput {
  const { threadId, toolCallId, source, edited, answered, signInId, unknownOutcome, policy, requesters } = call;
  if (!source) throw new Error(`${callKey(call)} is answered by another thread`);
  const { input, resumes } = turn.start;
  // A turn may repeat the sign-in requests of its own calls.
  const isResumed = resumes?.pending.some((one) => callKey(one) === callKey(call)) ?? false;
  const mayRepeat = !isResumed || mayRepeatSignIns(input);
  // A call whose kernel was lost cannot be run again.
  const asksIfUnknown = source.run?.effect === 'once' && !runsInSandbox(call) && turn.log.mayAskIfUnknown;
  const onReplaced = onReplacedOf(call);
  return {
    ...commonInput(turn, threadId),
    toolCallId,
    source,
    ...(edited && { edited }),
    ...(signInId !== undefined && { signIn: { id: signInId, mayRepeat } }),
    ...(answered && { answered }),
    ...(unknownOutcome !== undefined && { repeats: true }),
    ...(asksIfUnknown && { onUnknown: { ...(policy && { policy }), ...(requesters && { requesters }) } }),
    ...(onReplaced && { onReplaced }),
    ...(isCell(call) && callsUntil(turn, now)),
    ...turn.guard,
  };
}

function commonInput({ start, log }: RunningTurn, threadId: string): Omit<ThreadInput, keyof ScheduledBy> {
  const { agent } = log.thread(threadId);
  // Code has the rights of the agent that has written it.
  const author = agent?.code ? log.thread(agent.parent.threadId).agent : agent;
  const { sessionId, owner, specHash, isRun } = constantsOf(start, author);
  return { turnId: start.turnId, sessionId, threadId, specHash, owner, ...(isRun && { isRun }) };
}

/** Whether a start is small enough to be in the history twice. */
function isSmall(start: TurnStart): boolean {
  return JSON.stringify(start).length <= 4096;
}
