import { LRUCache } from 'lru-cache';
import { isUsedUp } from '../../core/budget.ts';
import { addRecord, NO_TOTALS } from '../../core/turn-totals.ts';
import type { PreparableCall } from '../../agents/model-call-part.ts';
import { prepareModelCall, type ModelCallSources, type PreparedModelCall } from '../../agents/prepare-model-call.ts';
import { heldCalls } from '../../core/call-order.ts';
import type { CallModelInput } from '../../core/history.ts';
import type { ModelCall } from '../../core/model-call.ts';
import type { CallSource, ToolCall } from '../../core/records/calls.ts';
import type { NewRecord } from '../../core/records/log.ts';
import type { ModelMessage } from '../../core/records/message.ts';
import { toolLanes } from '../../core/tool-lanes.ts';
import { hasNoResult, openCallsOf, operationIdOf } from '../../core/tool-records.ts';
import type { Conversations } from '../../engine/conversations.ts';
import type { LiveBus } from '../../live/bus.ts';
import { withTimeout } from '../../lib/timeout.ts';
import type { CallOutcome } from '../../mcp/call-outcome.ts';
import type { AskingCall } from '../../mcp/call-rounds.ts';
import type { ModelChunk } from '../../models/provider.ts';
import { withoutRequest } from '../../telemetry/log-context.ts';
import type { Metrics, SpeculativeStepOutcome } from '../../telemetry/metrics.ts';
import { inTurn } from '../../telemetry/trace-propagation.ts';
import { runToolCall, type ToolCallSources } from '../../tools/run-tool-call.ts';
import { shortResults, type EarlyResult } from './early-results.ts';
import { chunksOf, readAhead, type Part } from './read-ahead.ts';
import { UNCLAIMED_MS, UnclaimedWork } from './unclaimed-work.ts';

interface StepSources extends ModelCallSources, ToolCallSources {
  conversations: Pick<Conversations, 'ahead'>;
  bus: Pick<LiveBus, 'onHint'>;
  metrics: Pick<Metrics, 'speculativeSteps'>;
  draining: AbortSignal;
}

/** A message whose tools are running, and the model call that follows once all results are available. */
interface OpenMessage {
  next: NextCall;
  /** The number of missing results. */
  missing: number;
  stopListening: () => void;
}

type NextCall = PreparableCall &
  Pick<ModelCall, 'previousTurnId' | 'runId' | 'upTo' | 'recent' | 'forcedFromMs' | 'left'>;

/** A message that a model call is about to return under its stamp. */
interface EndedMessage {
  stamp: string;
  message: ModelMessage;
}

/** A model call that was begun. */
interface BegunCall {
  call: NextCall;
  response: Promise<{ prepared: PreparedModelCall; parts: ReadableStream<Part> }>;
}

/** A model call that an activity has claimed, as if the activity had begun it. */
export interface ClaimedModelCall {
  prepared: PreparedModelCall;
  chunks: AsyncIterable<ModelChunk>;
}

const MAX_MESSAGES = 1_000;

/** More model calls than a worker has at once. */
const MAX_CALLED = 10_000;

/** A model call that takes longer begins no further work. A call that runs on another worker is forgotten then. */
const CALLED_MS = 600_000;

/**
 * How long the outcome of a tool is kept for a turn that is paused meanwhile: the outcome reflects the state, and the
 * servers and grants, at the time of its start.
 */
const TOOL_KEPT_MS = 60_000;

/** How long a complete message waits for the results of its calls: about as long as Temporal takes to schedule them. */
export const EARLY_MS = 25;

const MAX_TOOLS = 10_000;

/**
 * The next step of each turn, begun while Temporal still records the current one: the read-only tools of a message as
 * soon as it is complete, and the next model call as soon as the last result is available. The activity that the
 * workflow then schedules on the same worker claims this work, so a step takes no longer than its model and its tools.
 * Results that are available at once are recorded with their message, which spares Temporal half of the step.
 *
 * A paused turn begins nothing. This state exists only in its workflow, so work begins only for a message that a
 * workflow of this worker has requested, and not after a command, which may pause the turn, until the workflow requests
 * the next message.
 *
 * Nothing is shown or used before the history has accepted the results on which it is based: they are identified by
 * their stamps, which the workflow passes to the activity. Unclaimed work costs tokens at most: only tools run that
 * change nothing and need no approval.
 */
export class StepsAhead {
  readonly #sources: StepSources;
  readonly #tools: UnclaimedWork<Promise<CallOutcome | AskingCall>>;
  readonly #calls: UnclaimedWork<BegunCall>;
  /** By the stamps of the messages. */
  readonly #messages = new LRUCache<string, OpenMessage>({
    max: MAX_MESSAGES,
    dispose: ({ stopListening }) => stopListening(),
  });
  /** The tools whose last speculative call took less than `EARLY_MS`. */
  readonly #quick = new LRUCache<string, true>({ max: MAX_TOOLS });
  /**
   * The messages for which turns of this worker have called the model, without a command since then. The values release
   * the timer and the listener that remove the entries.
   */
  readonly #called = new LRUCache<string, () => void>({ max: MAX_CALLED, dispose: (release) => release() });

  constructor(sources: StepSources) {
    this.#sources = sources;
    const ofWork = (work: 'tool_call' | 'model_call') => ({
      ...sources,
      onEnd: (outcome: SpeculativeStepOutcome) => sources.metrics.speculativeSteps.inc({ work, outcome }),
    });
    this.#tools = new UnclaimedWork({ ...ofWork('tool_call'), keptMs: TOOL_KEPT_MS, onCommand: 'keep' });
    this.#calls = new UnclaimedWork({ ...ofWork('model_call'), keptMs: UNCLAIMED_MS, onCommand: 'withdraw' });
  }

  /** Called when the workflow of a turn, on this worker, calls the model for a message: the turn is not paused. */
  modelCalled(turnId: string, messageId: string): void {
    const forget = (): void => void this.#called.delete(messageId);
    const expiry = setTimeout(forget, CALLED_MS).unref();
    const stopListening = this.#sources.bus.onHint(`command:${turnId}`, forget);
    this.#called.set(messageId, () => {
      clearTimeout(expiry);
      stopListening();
    });
  }

  /** Called when an attempt at a message has ended. The tools of the first one have begun; further ones begin none. */
  modelReturned({ messageId }: Pick<CallModelInput, 'messageId'>): void {
    this.#called.delete(messageId);
  }

  /** Called when the first attempt at a message has all `records` to return under `stamp`, except early results. */
  messageEnded(
    input: ModelCall,
    stamp: string,
    records: NewRecord[],
    { toolset: { tools }, spec }: Pick<PreparedModelCall, 'toolset' | 'spec'>,
  ): void {
    const message = records.find((record) => record.kind === 'model.message');
    if (!message || !this.#called.has(message.id) || usesUp(input, records)) return;
    // A call without a result may end the turn.
    if (records.some((record) => record.kind === 'tool.response' && hasNoResult(record))) return;
    const { toolCalls } = message;
    const { turnId, isRun, threadId, sessionId, owner, specHash } = input;
    const held = new Set([...heldCalls(openCallsOf(message, { turnId, stamp }))].map(({ source }) => source.index));
    const lanes = toolLanes({ isSubAgent: input.subAgent !== undefined, inSequence: spec.callsInSequence });
    for (const [index, call] of toolCalls.slice(0, lanes).entries()) {
      if (!runsAtOnce(call) || held.has(index) || !tools.get(call.name)?.beginsAhead) continue;
      // Contains the attempt: the history may accept another one, in which the same id belongs to another call.
      const operationId = `${operationIdOf({ turnId, isRun }, { threadId, toolCallId: call.id })}/${stamp}`;
      this.#tools.begin(toolKey({ stamp, index }), input, (signal) => {
        const place = { sessionId, owner, specHash, operationId, mayRepeat: true };
        const outcome = detached(() => runToolCall(this.#sources, call, place, signal));
        const startedAt = performance.now();
        const note = (): void => this.#noteDuration(call, performance.now() - startedAt);
        outcome.then(note, () => undefined);
        return outcome;
      });
    }
    // The next model call cannot be predicted in sub-agents, whose threads share a log, after a call that a person, a
    // client or a sub-agent answers, or before the client has refreshed its toolkits.
    if (
      records.some(({ kind }) => kind === 'toolkit.refresh_required') ||
      input.isLast ||
      input.isForced ||
      input.subAgent ||
      !toolCalls.every((call) => call.route.to === 'answered' || runsAtOnce(call))
    )
      return;
    const missing = toolCalls.filter(runsAtOnce).length;
    const upTo = input.upTo + records.length + missing;
    if (missing === 0) return;
    const stopListening = this.#sources.bus.onHint(`command:${turnId}`, () => this.#messages.delete(stamp));
    this.#messages.set(stamp, { next: { ...input, upTo, recent: [stamp] }, missing, stopListening });
  }

  /** Called before the first attempt at a tool call returns `record` under `stamp`: the next model call may begin. */
  toolEnded({ stamp: ofMessage }: CallSource, stamp: string, record: NewRecord): void {
    const message = this.#messages.get(ofMessage);
    if (!message) return;
    message.next.recent.push(stamp);
    message.missing -= 1;
    // The tools that searches find are offered in the order of their results, which the history decides. A call without
    // a result may end the turn.
    const mayFollow = record.kind !== 'tool.response' || !(record.foundTools || hasNoResult(record));
    if (mayFollow && message.missing > 0) return;
    this.#messages.delete(ofMessage);
    if (mayFollow) this.#beginCall(message.next);
  }

  /**
   * The results of a message's calls, if the server runs all of them, and all results are short and available soon: the
   * model call then returns them with the message. Otherwise the activities of the calls claim the begun work.
   *
   * Waits only if the tools were as fast before, and not in sub-agents, beside which others use up the turn's budget.
   */
  async earlyResults(
    { subAgent }: Pick<ModelCall, 'subAgent'>,
    { stamp, message }: EndedMessage,
    signal: AbortSignal,
  ): Promise<EarlyResult[] | undefined> {
    const calls = subAgent ? undefined : this.#begunCalls(stamp, message.toolCalls);
    if (!calls?.every(({ call }) => this.#quick.has(toolOf(call)))) return undefined;
    const outcomes = Promise.all(calls.map(async ({ index, outcome }) => ({ index, outcome: await outcome })));
    const ended = await withTimeout(EARLY_MS, outcomes).catch(() => undefined);
    const results = ended && shortResults(ended);
    if (!results || signal.aborted || !this.#called.has(message.id)) return undefined;
    const claimed = calls.map(({ key }) => this.#tools.claim(key, signal));
    for (const one of claimed) one?.release();
    // A missing claim was withdrawn because the turn is being cancelled or the worker drains.
    return claimed.includes(undefined) ? undefined : results;
  }

  /** Called before a model call returns a message with its early results: the next model call may begin. */
  resultsEnded(stamp: string): void {
    const message = this.#messages.get(stamp);
    this.#messages.delete(stamp);
    if (message) this.#beginCall(message.next);
  }

  /** Called when a tool call waits for an answer or a sign-in: its message may get its results much later. */
  toolWaits({ stamp: ofMessage }: CallSource): void {
    this.#messages.delete(ofMessage);
  }

  /** The outcome of a tool call, if it was begun. Aborting `signal` ends the call. */
  claimTool(source: CallSource, signal: AbortSignal): Promise<CallOutcome | AskingCall> | undefined {
    const claimed = this.#tools.claim(toolKey(source), signal);
    return claimed && claimed.value.finally(claimed.release);
  }

  /**
   * The response to a model call, if it was begun with the conversation that the history has now. Aborting `signal`
   * ends the call.
   */
  async claimModelCall(input: CallModelInput, signal: AbortSignal): Promise<ClaimedModelCall | undefined> {
    const claimed = this.#calls.claim(threadKey(input), signal, ({ call }) => isSame(call, input));
    if (!claimed) return undefined;
    // A call that could not be prepared fails again in the activity, which reports it.
    const { value, release } = claimed;
    const response = await value.response.catch(() => undefined);
    if (response) return { prepared: response.prepared, chunks: releasing(chunksOf(response.parts), release) };
    release();
    return undefined;
  }

  /** The calls of a message without a result so far, if there are any and all of them have begun. */
  #begunCalls(stamp: string, toolCalls: ToolCall[]) {
    const calls = [...toolCalls.entries()].flatMap(([index, call]) => {
      const key = toolKey({ stamp, index });
      return call.route.to === 'answered' ? [] : [{ index, call, key, outcome: this.#tools.peek(key) }];
    });
    return calls.length > 0 && calls.every(({ outcome }) => outcome !== undefined) ? calls : undefined;
  }

  #noteDuration(call: ToolCall, ms: number): void {
    if (ms < EARLY_MS) this.#quick.set(toolOf(call), true);
    else this.#quick.delete(toolOf(call));
  }

  #beginCall(next: NextCall): void {
    const now = Date.now();
    if (now >= (next.left?.untilMs ?? Infinity)) return;
    const call: NextCall = now >= (next.forcedFromMs ?? Infinity) ? { ...next, isForced: true } : next;
    this.#calls.begin(threadKey(call), call, (signal) => this.#ask(call, signal));
  }

  #ask(call: NextCall, signal: AbortSignal): BegunCall | undefined {
    const records = this.#sources.conversations.ahead(call, signal);
    if (!records) return undefined;
    const response = detached(async () => {
      const prepared = await prepareModelCall(this.#sources, call, records, signal);
      signal.throwIfAborted();
      // Only the activity compacts conversations and requests sign-ins.
      if (prepared.compaction) throw new Error('the conversation has to be compacted first');
      if (prepared.toolset.unavailable.some(({ signIn }) => signIn)) throw new Error('the user has to sign in first');
      return { prepared, parts: readAhead(prepared.provider.stream(prepared.request, signal)) };
    });
    response.catch(() => undefined);
    return { call, response };
  }
}

/** Whether records use up the turn's budget, which then pauses the turn: no other thread runs beside the root agent. */
function usesUp({ left }: Pick<CallModelInput, 'left'>, records: NewRecord[]): boolean {
  return left !== undefined && isUsedUp(left, records.reduce(addRecord, NO_TOTALS), Date.now());
}

/** Whether a call runs as soon as the workflow has its message. */
function runsAtOnce({ route }: ToolCall): boolean {
  return route.to === 'server' && !route.approval;
}

/** Whether a begun call is the one that a workflow requests. The order of results does not matter to a model. */
function isSame(begun: NextCall, asked: CallModelInput): boolean {
  return (
    begun.upTo === asked.upTo &&
    begun.mayStart === asked.mayStart &&
    begun.isForced === asked.isForced &&
    begun.recent.length === asked.recent.length &&
    begun.recent.every((stamp) => asked.recent.includes(stamp))
  );
}

function toolOf({ info }: ToolCall): string {
  return info.type === 'mcp' ? `${info.serverId} ${info.name}` : info.name;
}

function toolKey({ stamp, index }: Pick<CallSource, 'stamp' | 'index'>): string {
  return `${stamp} ${index}`;
}

function threadKey({ turnId, threadId }: Pick<NextCall, 'turnId' | 'threadId'>): string {
  return `${turnId} ${threadId}`;
}

/** Runs work as a part of the turn, not of the activity that begins it, which ends earlier. */
function detached<T>(work: () => T): T {
  return inTurn(() => withoutRequest(work));
}

async function* releasing<T>(source: AsyncIterable<T>, release: () => void): AsyncGenerator<T> {
  try {
    yield* source;
  } finally {
    release();
  }
}
