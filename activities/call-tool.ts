import { randomUUID } from 'node:crypto';
import { ApplicationFailure, Context } from '@temporalio/activity';
import { offloadResult, offloadText, PayloadTooLarge, restore } from '../src/blobs/offload.ts';
import type { Called } from '../src/core/attempts.ts';
import { calledTool } from '../src/core/timeline.ts';
import type { CallToolInput, CallToolResult } from '../src/core/history.ts';
import type { ToolCall } from '../src/core/records/calls.ts';
import type { NewRecord } from '../src/core/records/log.ts';
import type { Elicitation, PendingCall } from '../src/core/records/pending.ts';
import type { AuthRequired, ServerSignIn } from '../src/core/records/servers.ts';
import type { SubAgent } from '../src/core/records/threads.ts';
import { startSubAgent } from '../src/agents/start-sub-agent.ts';
import { operationIdOf, outcomeText, votesOf } from '../src/core/tool-records.ts';
import { pick } from '../src/core/pick.ts';
import { ownerOfCall } from '../src/core/work-owner.ts';
import type { CallOutcome } from '../src/mcp/call-outcome.ts';
import { requestSignIn } from '../src/features/sign-in/request-sign-ins.ts';
import type { AskingCall, CallRounds, ResumedCall } from '../src/mcp/call-rounds.ts';
import { parseAnswer } from '../src/tools/elicitation-answer.ts';
import type { RunOptions } from '../src/tools/tool-kind.ts';
import { runToolCall } from '../src/tools/run-tool-call.ts';
import { CANCELLED, resultOf, storeResponse, type UnstoredResult } from '../src/tools/results.ts';
import { announceRetry } from './announce-retry.ts';
import type { Dependencies } from './dependencies.ts';
import { completeReliably } from '../src/engine/complete-reliably.ts';
import { detailsLeft, GIVEN_UP, stopReason, withHeartbeat } from '../src/temporal/activity-heartbeat.ts';
import { WORKER_SHUTDOWN, type OwnAttempts } from '../src/temporal/own-attempts.ts';
import { rejectResetRun } from '../src/temporal/reject-reset-run.ts';
import { failUnlessTransient, retryWhileUnavailable, storeWhileUnavailable } from '../src/engine/retry.ts';
import { NEVER_ABORTED, onAbort } from '../src/lib/abort.ts';
import { errorMessage } from '../src/lib/errors.ts';
import { parsedJson } from '../src/lib/json.ts';

/** How long a cancelled tool with effects may still run: if it ends in this time, its outcome is known. */
const CANCEL_GRACE_MS = 5_000;

/** How many times a tool that may run again is called if no result arrives. */
const MAX_FAILURES = 5;

/** The longest text about an unknown outcome, in characters: the turn carries it with its pending call. */
const MAX_UNKNOWN_LENGTH = 1_000;

const REPLACED = 'the connection to its server was replaced after it had begun';

/** The call waits for the user to sign in to its server. */
interface RequiredSignIn {
  kind: AuthRequired['kind'];
  server: ServerSignIn;
}

/** The call was not executed, and needs another approval. */
interface Replaced {
  isReplaced: true;
}

/** Another agent works on the call, in this session. */
interface Delegated {
  childSessionId: string;
}

type End = UnstoredResult | AskingCall | RequiredSignIn | Replaced | Delegated | Started;

/** A sub-agent has the call as its task. */
interface Started {
  thread: SubAgent;
  input: string;
}

/**
 * Runs one tool call and returns its outcome, also if it failed, or what it waits for: the user's answer to a question
 * of its server, or a sign-in. Throws only where another attempt may repeat the call: the tool allows that, and this
 * worker stops or no response of the server arrived.
 */
export function createCallTool(dependencies: Dependencies): (input: CallToolInput) => Promise<CallToolResult> {
  return async (input) => {
    rejectResetRun(input);
    const run = new ToolCallAttempt(dependencies, input);
    return withHeartbeat((attempts) => failUnlessTransient(() => run.run(attempts)), {
      details: () => run.details,
      called: () => run.called,
      // Any other call has one attempt.
      onRetry: (attempt) => run.isRetryable && announceRetry(dependencies.bus, input, attempt),
      giveUp: async (attempts) => run.addAttempts(await run.giveUp(), attempts),
      onCancelHint: (listener) => dependencies.bus.onHint(`cancel:${input.turnId}`, listener),
    });
  };
}

class ToolCallAttempt {
  /** Passed to the next attempt: how often and how long the tool has not responded. Lost workers are not included. */
  readonly details: { failures: number; failingMs: number };
  readonly #dependencies: Dependencies;
  readonly #input: CallToolInput;
  readonly #context = Context.current();
  readonly #startedAt = Date.now();
  /** The tool, once the call is known. */
  called: Called = {};
  /** The arguments that were approved instead of the model's, once the call is known. */
  #executed: string | undefined;

  constructor(dependencies: Dependencies, input: CallToolInput) {
    this.#dependencies = dependencies;
    this.#input = input;
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by the previous attempt
    this.details = (detailsLeft() as ToolCallAttempt['details'] | undefined) ?? { failures: 0, failingMs: 0 };
  }

  async run(attempts: OwnAttempts): Promise<CallToolResult> {
    const { signal, release } = this.#stopSignal();
    try {
      const appended = this.addAttempts(await this.#append(await this.#execute(signal)), attempts);
      if (!this.isRetryable) completeReliably(this.#dependencies, appended);
      return appended;
    } finally {
      release();
    }
  }

  /** Ends the call after too many lost attempts; each of them may have reached the tool. */
  giveUp(): Promise<CallToolResult> {
    return this.#store({ outcome: 'unknown_outcome', text: `${outcomeText('unknown_outcome')} (${GIVEN_UP})` });
  }

  /** Names the tool only for a call of an earlier turn: this turn's log does not contain it. */
  addAttempts(result: CallToolResult, attempts: OwnAttempts): CallToolResult {
    return attempts.addTo(result, this.#input.source.turnId === this.#input.turnId ? {} : this.called);
  }

  get isRetryable(): boolean {
    return this.#input.source.run?.effect === 'retry';
  }

  /** An earlier attempt or a kernel host may have reached the tool: the call cannot be reported as not executed. */
  get #isRepeated(): boolean {
    const { source, answered, repeats } = this.#input;
    return (
      this.#context.info.attempt > 1 || answered !== undefined || repeats === true || source.run?.hasBegun === true
    );
  }

  /** Whether the workflow has cancelled the call, rather than its worker. */
  get #isCancelled(): boolean {
    return this.#context.cancellationSignal.aborted && stopReason(this.#context) === 'cancelled';
  }

  async #execute(signal: AbortSignal): Promise<End> {
    const { conversations, stepsAhead } = this.#dependencies;
    const { sessionId, owner, specHash, source, edited, signIn, repeats, isRun } = this.#input;
    // Names the turn whose model made the call, even if a later turn runs it after an approval.
    const operationId = operationIdOf({ turnId: source.turnId, isRun }, this.#input);
    let outcome: CallOutcome | AskingCall;
    try {
      const resumed = await this.#resumed(signal);
      if (resumed && 'status' in resumed) return resumed;
      const call = await retryWhileUnavailable(() => conversations.toolCall(this.#input), signal);
      this.called = calledTool(call);
      if (call.route.to === 'session') return await this.#delegate(call.route.sessionId, call, signal);
      if (source.run?.startsTask) return await this.#startTask(call, signal);
      const isEdited = edited !== undefined;
      if (isEdited) this.#executed = call.arguments;
      const reliesOn = await this.#reliesOn(call, signal);
      const scope = { sessionId, owner, specHash };
      const options = { ...scope, operationId, mayRepeat: this.isRetryable, resumed, isEdited, reliesOn };
      const isNew = !resumed && !signIn && !isEdited && !repeats;
      const begun = isNew ? stepsAhead.claimTool(source, signal) : undefined;
      outcome = await (begun ?? runToolCall(this.#dependencies, call, options, signal));
    } catch (error) {
      if (signal.aborted) return this.#stoppedBefore();
      return this.#notExecuted(errorMessage(error));
    }
    if (outcome.status === 'asks') return outcome;
    // An earlier attempt may have taken effect, so the call cannot be approved as one that has not run.
    if (outcome.status === 'replaced') return this.#isRepeated ? this.#notExecuted(REPLACED) : { isReplaced: true };
    return outcome.status === 'sign_in_required' ? this.#requestSignIn(outcome) : this.#resultOf(outcome, signal);
  }

  /** Undefined for a call whose approval is never requested again: it runs on any connection. */
  async #reliesOn({ info }: ToolCall, signal: AbortSignal): Promise<RunOptions['reliesOn']> {
    if (!this.#input.onReplaced || info.type !== 'mcp') return undefined;
    const { conversations } = this.#dependencies;
    return retryWhileUnavailable(() => conversations.reliedOn(this.#input, info.serverId, signal), signal);
  }

  async #delegate(childSessionId: string, call: ToolCall, signal: AbortSignal): Promise<UnstoredResult | Delegated> {
    const owner = ownerOfCall(this.#input.owner, call);
    const delegated = { ...this.#input, owner, childSessionId, arguments: call.arguments };
    const start = () => this.#dependencies.delegator.start(delegated);
    const started = await retryWhileUnavailable(start, signal);
    return started ? { outcome: 'failed', text: started.problem } : { childSessionId };
  }

  async #startTask(call: ToolCall, signal: AbortSignal): Promise<UnstoredResult | Started> {
    const { source, turnId, sessionId, threadId } = this.#input;
    const { messageId, index } = source;
    const runId = this.#context.info.workflowExecution?.runId ?? '';
    const start = async () => {
      const constants = await this.#dependencies.conversations.constants({ turnId, sessionId, threadId }, runId);
      // How many sub-agents a message may start was decided with the message.
      const thread = { ...constants, messageId, threadId, mayStart: 1 };
      const args = parsedJson(call.arguments);
      const asDraft = 'draftRoles' in call.route && { draftRoles: call.route.draftRoles };
      return startSubAgent(this.#dependencies, thread, { call, index, args, ...asDraft, started: 0 });
    };
    const started = await retryWhileUnavailable(start, signal);
    return 'problem' in started ? { outcome: 'failed', text: started.problem } : started;
  }

  /** Begins the thread of a sub-agent, which ends with the result of the call. */
  async #begin({ thread, input }: Started): Promise<CallToolResult> {
    const { blobs } = this.#dependencies;
    const { sessionId } = this.#input;
    const records: NewRecord[] = [{ kind: 'thread.created', at: new Date().toISOString(), thread, input }];
    const stored = await storeWhileUnavailable(() => offloadResult(records, { blobs, sessionId }), NEVER_ABORTED);
    return this.#leftOpen(records, stored);
  }

  /** The server has not executed the call: it runs after the sign-in, or fails without it. */
  async #requestSignIn({
    message,
    signIn,
  }: Extract<CallOutcome, { status: 'sign_in_required' }>): Promise<UnstoredResult | RequiredSignIn> {
    const { turnId, signIn: earlier, answered } = this.#input;
    // The server has begun the call before, so it cannot begin again after a sign-in.
    if (answered) return this.#notExecuted(message);
    const requests = { signIns: this.#dependencies.signIns, scope: this.#input, turnId };
    const known = earlier && { ...earlier, isRecent: true };
    const requested = await retryWhileUnavailable(() => requestSignIn(signIn, known, requests), NEVER_ABORTED);
    return 'reason' in requested
      ? this.#notExecuted(`${message}: ${requested.reason}`)
      : { kind: 'mcp.auth_required', server: requested };
  }

  /** The user's answer with which the call continues. If it does not fit the question, the question is asked again. */
  async #resumed(signal: AbortSignal): Promise<ResumedCall | AskingCall | undefined> {
    const { answered, sessionId } = this.#input;
    if (!answered) return undefined;
    const { blobs } = this.#dependencies;
    const texts = { question: answered.elicitation.question, content: answered.content };
    const load = () =>
      Promise.all([restore(texts, { blobs, sessionId }), blobs.get(sessionId, answered.elicitation.state.blob)]);
    const [{ question: json, content }, state] = await retryWhileUnavailable(load, signal);
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `#storeQuestion`
    const [question, rounds] = [JSON.parse(json) as Elicitation, JSON.parse(state.toString()) as CallRounds];
    // The API has validated it, unless the question was not readable at that moment.
    const parsed = parseAnswer(question, content);
    return parsed.ok ? { question, rounds, answer: parsed.answer } : { status: 'asks', question, rounds };
  }

  async #storeQuestion({ question, rounds }: AskingCall): Promise<CallToolResult> {
    const { blobs, ownQueue } = this.#dependencies;
    const { sessionId } = this.#input;
    const store = () =>
      Promise.all([
        offloadText(JSON.stringify(question), { blobs, sessionId }),
        blobs.put(sessionId, Buffer.from(JSON.stringify(rounds))),
        rounds.by === 'connection' ? ownQueue.open() : undefined,
      ]);
    const [text, blob, keptOpenBy] = await storeWhileUnavailable(store, NEVER_ABORTED);
    const elicitation = { question: text, state: { blob }, ...(keptOpenBy !== undefined && { keptOpenBy }) };
    return { ...this.#leftOpen(), elicitation };
  }

  #resultOf(
    outcome: Exclude<CallOutcome, { status: 'sign_in_required' | 'replaced' }>,
    signal: AbortSignal,
  ): UnstoredResult {
    switch (outcome.status) {
      case 'result':
      case 'rejected':
        return resultOf(outcome);
      case 'not_sent':
        if (this.#isRepeated) return this.#unknown(outcome.message, signal);
        if (signal.aborted) return this.#stoppedBefore();
        return this.#notExecuted(`its server cannot be reached: ${outcome.message}`);
      case 'unknown':
        return { ...this.#unknown(outcome.message, signal, outcome.isFinal), connection: outcome.connection };
    }
  }

  /** The result of a call that was stopped before anything was sent. */
  #stoppedBefore(): UnstoredResult {
    if (this.isRetryable) this.#throwIfShuttingDown();
    return this.#isRepeated ? CANCELLED : { outcome: 'cancelled', text: outcomeText('cancelled') };
  }

  #notExecuted(reason: string): UnstoredResult {
    if (this.#isRepeated) return { outcome: 'unknown_outcome', text: `${outcomeText('unknown_outcome')} (${reason})` };
    return { outcome: 'failed', text: `The tool call was not executed: ${reason}`, noResult: 'unreachable' };
  }

  #unknown(message: string, signal: AbortSignal, isFinal = false): UnstoredResult {
    if (this.isRetryable && !isFinal) {
      if (signal.aborted) this.#throwIfShuttingDown();
      if (signal.aborted) return CANCELLED;
      this.details.failures += 1;
      this.details.failingMs += Date.now() - this.#startedAt;
      // The time-out of one call applies to all attempts together.
      const isOutOfTime = this.details.failingMs >= this.#dependencies.config.tool.timeoutSeconds * 1000;
      if (this.details.failures < MAX_FAILURES && !isOutOfTime) {
        throw ApplicationFailure.retryable(message, 'NoAnswer');
      }
    }
    return { outcome: 'unknown_outcome', text: `${outcomeText('unknown_outcome')} (${message})` };
  }

  /** Leaves a call that may run again to another worker, unless the workflow has cancelled it. */
  #throwIfShuttingDown(): void {
    if (this.#isCancelled) return;
    throw ApplicationFailure.retryable('the worker is shutting down', WORKER_SHUTDOWN);
  }

  /**
   * The signal that aborts the call. A call that may run again is aborted immediately. A call with effects is
   * aborted a grace period after the turn is cancelled, and not while this worker drains.
   */
  #stopSignal(): { signal: AbortSignal; release: () => void } {
    const { cancellationSignal } = this.#context;
    if (this.isRetryable) {
      const signal = AbortSignal.any([cancellationSignal, this.#dependencies.draining]);
      return { signal, release: () => undefined };
    }
    const controller = new AbortController();
    let timer: NodeJS.Timeout | undefined;
    const onStop = (): void => {
      const grace = stopReason(this.#context) === 'cancelled' ? CANCEL_GRACE_MS : 0;
      timer = setTimeout(() => controller.abort(cancellationSignal.reason), grace);
    };
    const stopListening = onAbort(cancellationSignal, onStop);
    const release = (): void => {
      clearTimeout(timer);
      stopListening();
    };
    return { signal: controller.signal, release };
  }

  #append(end: End): Promise<CallToolResult> {
    if ('thread' in end) return this.#begin(end);
    if ('childSessionId' in end) return Promise.resolve({ ...this.#leftOpen(), isDelegated: true });
    if ('isReplaced' in end) return Promise.resolve({ ...this.#leftOpen(), ...end });
    if ('question' in end) return this.#storeQuestion(end);
    if ('kind' in end) return Promise.resolve(this.#waitForSignIn(end));
    const mustAsk = this.#input.onUnknown && end.outcome === 'unknown_outcome' && !this.#isCancelled;
    return mustAsk ? Promise.resolve(this.#askAbout(end)) : this.#store(end);
  }

  /** Asks a person how the call has ended. */
  #askAbout({ text }: UnstoredResult): CallToolResult {
    return { ...this.#leftOpen(), unknownOutcome: text.slice(0, MAX_UNKNOWN_LENGTH).toWellFormed() };
  }

  /** The result of an attempt after which the call stays open. @param stored the records as the history gets them */
  #leftOpen(records: NewRecord[] = [], stored = records): CallToolResult {
    const stamp = randomUUID();
    this.#dependencies.conversations.remember({ turnId: this.#input.turnId, stamp }, records);
    this.#dependencies.stepsAhead.toolWaits(this.#input.source);
    return { records: stored, stamp };
  }

  #waitForSignIn({ kind, server }: RequiredSignIn): CallToolResult {
    const { threadId, toolCallId, source, onUnknown } = this.#input;
    const call: PendingCall = {
      threadId,
      toolCallId,
      needs: 'sign_in',
      source,
      signInId: server.signInId,
      ...pick(this.#input, 'edited', 'onReplaced'),
      // If its outcome is unknown after the sign-in, these approvers must agree that it runs again.
      ...(onUnknown?.policy && { policy: votesOf(onUnknown.policy) }),
      ...(onUnknown?.requesters && { requesters: onUnknown.requesters }),
    };
    const at = new Date().toISOString();
    return this.#leftOpen([{ kind, at, threadId, servers: [server], calls: [call] }]);
  }

  /** Stores a result. The effect may have happened, so this is retried for as long as the store is unavailable. */
  async #store(result: UnstoredResult): Promise<CallToolResult> {
    const store = (some: UnstoredResult) => storeWhileUnavailable(() => this.#tryToStore(some), NEVER_ABORTED);
    let saved: Awaited<ReturnType<typeof store>>;
    try {
      saved = await store(result);
    } catch (error) {
      if (!(error instanceof PayloadTooLarge)) throw error;
      saved = await store(textAlone(result));
    }
    const stamp = randomUUID();
    this.#dependencies.conversations.remember({ turnId: this.#input.turnId, stamp }, [saved.record]);
    // A turn that is being cancelled makes no further model call, and an earlier attempt may have begun it.
    const mayFollow = !this.#context.cancellationSignal.aborted && this.#context.info.attempt === 1;
    if (mayFollow) this.#dependencies.stepsAhead.toolEnded(this.#input.source, stamp, saved.record);
    return { records: saved.stored, stamp };
  }

  /** @throws PayloadTooLarge */
  async #tryToStore(result: UnstoredResult): Promise<{ record: NewRecord; stored: NewRecord[] }> {
    const { blobs } = this.#dependencies;
    const { sessionId } = this.#input;
    const record = await storeResponse({ ...this.#input, executed: this.#executed }, result, { blobs, sessionId });
    return { record, stored: await offloadResult([record], { blobs, sessionId }) };
  }
}

/** A result without its files, if it is too large with them. */
function textAlone({ outcome, text, files = [], connection }: UnstoredResult): UnstoredResult {
  const note = `[the ${files.length} files of this result were left out: together they are too large to be stored]`;
  return { outcome, text: `${text}\n${note}`, connection };
}
