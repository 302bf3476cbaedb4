import { randomUUID } from 'node:crypto';
import { ApplicationFailure, CancelledFailure, Context } from '@temporalio/activity';
import { ApplicationFailureCategory } from '@temporalio/common';
import { offloadResult, PayloadTooLarge } from '../src/blobs/offload.ts';
import { storeFiles, type FileContent } from '../src/blobs/store-files.ts';
import type { Called } from '../src/core/attempts.ts';
import type { GivenMessage } from '../src/core/given-conversation.ts';
import type { CallModelInput, CallModelResult } from '../src/core/history.ts';
import type { ModelCall } from '../src/core/model-call.ts';
import {
  addUsage,
  emptyAnswer,
  NO_USAGE,
  ROOT_THREAD,
  UNREPORTED,
  type FailedAttempt,
  type ModelMessage,
  type NewRecord,
  type ServerSignIn,
  type TurnError,
  type UnsequencedRecord,
  type Usage,
} from '../src/core/records.ts';
import { ModelError } from '../src/models/model-error.ts';
import { networkCause } from '../src/models/network-cause.ts';
import { addressOf, wrongAddress } from '../src/models/wrong-address.ts';
import type { ModelChunk, ModelRequest } from '../src/models/provider.ts';
import type { BudgetReport } from '../src/core/budget.ts';
import { ConversationLost } from '../src/engine/conversations.ts';
import { BudgetReached, BudgetsUnavailable } from '../src/engine/shared-budgets.ts';
import { isUnavailable } from '../src/engine/unavailable.ts';
import { MessageAssembler, reported } from '../src/agents/message-assembler.ts';
import { announceRetry } from './announce-retry.ts';
import type { Dependencies } from './dependencies.ts';
import { detailsLeft, GIVEN_UP, stopReason, withHeartbeat } from '../src/temporal/activity-heartbeat.ts';
import { compactConversation } from '../src/agents/compact-conversation.ts';
import { refreshAfter, repeatedTool } from '../src/agents/client-toolkits.ts';
import { prepareModelCall, type Compaction, type PreparedModelCall } from '../src/agents/prepare-model-call.ts';
import { endOfSubAgent, refusalOf } from '../src/agents/end-sub-agent.ts';
import { routeDelegation } from '../src/agents/route-delegation.ts';
import { missingServer } from '../src/agents/missing-server.ts';
import { startSubAgent, type SubAgentCall } from '../src/agents/start-sub-agent.ts';
import { outcomeOf } from '../src/agents/structured-answer.ts';
import { MAX_WAITING_CALLS } from '../src/core/sub-agents.ts';
import type { Toolset } from '../src/tools/toolset.ts';
import { withEarlyResults } from '../src/speculation/early-results.ts';
import { WORKER_SHUTDOWN } from '../src/temporal/own-attempts.ts';
import { rejectResetRun } from '../src/temporal/reject-reset-run.ts';
import { failUnlessTransient, retryWhileUnavailable, storeWhileUnavailable } from '../src/engine/retry.ts';
import { NEVER } from '../src/lib/abort.ts';
import { backoffMs } from '../src/lib/backoff.ts';
import { errorMessage } from '../src/lib/errors.ts';

/** What an attempt passes to the next one. */
interface AttemptDetails {
  /** How many of the agent's models were given up. */
  fallback: number;
  /** How often the provider of the current model has failed, and the milliseconds of these failures, waits included. */
  failures: number;
  failingMs: number;
  /** All attempts that failed, of all models. */
  failed: FailedAttempt[];
  /** The usage of the first `accounted` attempts, as far as it was reported. */
  usage: Usage;
  accounted: number;
  /** The model was called for the message, or for the summary that comes first; or its worker was lost, and may have. */
  isCalled?: true;
}

/** The wait between attempts at a provider that fails, unless the provider says how long to wait. */
const FIRST_WAIT_MS = 500;
const MAX_WAIT_MS = 30_000;

/** How many of an agent's tools an error of its model names. */
const MAX_NAMED_TOOLS = 20;

/** How long a model is retried if there is another one: short overloads pass, and readers wait no longer than this. */
const FALLBACK_AFTER_MS = 10_000;

/**
 * How long a server is retried that has never answered this installation and cannot be reached: it is not running yet,
 * or its address is wrong, and the user should learn which before long.
 */
const FIRST_CONTACT_MS = 10_000;

/** Without a wait of its own, the retry would get that of the policy. */
const FALLBACK_WAIT_MS = 1;

type Outcome = CallModelResult['outcome'];

type MessageOutcome = Outcome & { status: 'answered' | 'cancelled' | 'sign_in_required' | 'error' };

/** Records, and what the history gets of them: large texts are in the blob store. */
interface StoredRecords {
  records: NewRecord[];
  stored: NewRecord[];
}

/** What comes before the model is called: a compaction, sign-ins, or an error. */
type Instead = NewRecord | ServerSignIn[] | TurnError;

/**
 * Requests the next message of a thread from the model. Deltas are published on the live bus as they arrive; the result
 * is the finished message, with the results of its calls if these are known at once.
 *
 * - If the workflow cancels, the result is the message so far.
 * - If this worker stops, or the provider fails with a transient error, it throws, and another attempt starts the same
 *   message again.
 * - If the provider is overloaded or unavailable for `FALLBACK_AFTER_MS` and the agent has another model, the next
 *   attempt starts the message with that one.
 * - If the conversation has become too long, the result is what it is compacted to, and the workflow calls again.
 * - If a budget that the turn shares with others was reached, the result says so, and the workflow calls again.
 * - If the provider fails permanently, or the last model for longer than configured, or than `FIRST_CONTACT_MS` if it
 *   cannot be reached and never could, the result is the message so far
 *   and the provider's error.
 * - If a server that the agent requires is unavailable, the result of the first call is an empty message and an error.
 * - If the model's answer does not fit the agent's schema too often, the result is that message and an error.
 * - If too many attempts were lost, the result is an empty message and an error that says so.
 */
export function createCallModel(dependencies: Dependencies): (input: CallModelInput) => Promise<CallModelResult> {
  return async (input) => {
    rejectResetRun(input);
    const call = new ModelCallAttempt(dependencies, input);
    try {
      return await withHeartbeat(async (attempts) => attempts.addTo(await call.run()), {
        details: () => call.details,
        called: () => call.called,
        onRetry: (attempt) => announceRetry(dependencies.bus, input, attempt),
        giveUp: async (attempts) => attempts.addTo(await call.giveUp()),
        onCancelHint: (listener) => dependencies.bus.onHint(`cancel:${input.turnId}`, listener),
      });
    } finally {
      call.finish();
      dependencies.stepsAhead.modelReturned(input);
    }
  };
}

class ModelCallAttempt {
  readonly details: AttemptDetails;
  readonly #dependencies: Dependencies;
  readonly #input: CallModelInput;
  readonly #context = Context.current();
  readonly #signal: AbortSignal;
  readonly #startedAt = Date.now();
  #known: ModelCall | undefined;
  #message: MessageAssembler | undefined;
  /** Whether the model may have processed the request of this attempt. */
  #wasCalled = false;
  /** The attempt writes a summary of the conversation, not the message. */
  #isCompacting = false;
  /** Whether readers may have been shown the beginning of a message that this attempt does not continue. */
  #mayBeShown = false;

  constructor(dependencies: Dependencies, input: CallModelInput) {
    this.#dependencies = dependencies;
    this.#input = input;
    this.#signal = AbortSignal.any([this.#context.cancellationSignal, dependencies.draining]);
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by the previous attempt
    this.details = (detailsLeft() as AttemptDetails | undefined) ?? {
      fallback: 0,
      failures: 0,
      failingMs: 0,
      failed: [],
      usage: NO_USAGE,
      accounted: 0,
    };
    // Attempts whose workers were lost have not recorded their usage.
    const { attempt } = this.#context.info;
    for (; this.details.accounted < attempt - 1; this.details.accounted++) {
      this.#add(UNREPORTED);
      dependencies.metrics.retries.inc({ activity: 'callModel', reason: 'lost' });
    }
  }

  async run(): Promise<CallModelResult> {
    try {
      const instead = await this.#answerOrCompact();
      if (this.#signal.aborted) return await this.#stopped();
      if (instead && 'kind' in instead) return await this.#append([instead], { status: 'compacted' });
      if (instead && 'status' in instead) return await this.#result(instead);
      if (instead) return await this.#result({ status: 'sign_in_required' }, instead);
      // Providers return an empty message occasionally, and a retry mends it. A second one is the model's answer.
      if (this.#message?.isEmpty && this.details.failures === 0) {
        throw new ModelError('empty_answer', 'the model gave an empty answer');
      }
      this.#noteTruncation();
      const mayBeCutOff = this.#message?.mayBeCutOff === true && { mayBeCutOff: true as const };
      return await this.#result(this.#message?.failure ?? { status: 'answered', ...mayBeCutOff });
    } catch (error) {
      if (error instanceof BudgetReached && !this.#signal.aborted) return this.#held(error.report);
      return this.#signal.aborted ? await this.#stopped() : await this.#failed(error);
    }
  }

  /** Ends the message after too many lost attempts. */
  giveUp(): Promise<CallModelResult> {
    return this.#result({ status: 'error', message: `The model call was abandoned: ${GIVEN_UP}` });
  }

  /** The message that the attempt has published, if any, is not in progress any more. */
  finish(): void {
    this.#message?.finish();
  }

  /**
   * Reads the model's answer into the message. The first model call of a turn uses the turn's speculative call, if there
   * is one, and a later one the call that began with the last result. A later attempt does not look for either: the worker
   * that started it may be the one that was lost. Returns what comes first if the model was not called.
   */
  async #answer(): Promise<Instead | undefined> {
    const { speculativeCalls, stepsAhead, bus, signIns } = this.#dependencies;
    const { attempt } = this.#context.info;
    const input = await this.#call();
    const isFirst = input.step === 1 && input.threadId === ROOT_THREAD;
    // None was started for a conversation that has to be compacted first, nor for a forced answer.
    const mayClaim = isFirst && attempt === 1 && input.upTo === 1 && !input.isForced;
    const claimed = mayClaim ? await speculativeCalls.claim(input, this.#signal) : undefined;
    if (claimed) {
      this.#begin(claimed.message);
      // The next model call extends what this reads.
      this.#conversation(input).catch(() => undefined);
      await claimed.ended;
      return undefined;
    }
    const conversation = this.#conversation(input);
    // A call that was begun does not need it, but the next one extends what this reads.
    conversation.catch(() => undefined);
    const ahead = attempt === 1 ? await stepsAhead.claimModelCall(input, this.#signal) : undefined;
    const requests = { signIns, scope: input, turnId: input.turnId };
    const call = { ...input, fallback: this.details.fallback, isRetry: this.#isRetry };
    const prepared =
      ahead?.prepared ?? (await prepareModelCall(this.#dependencies, call, conversation, this.#signal, requests));
    // Not only in the first step, which may have asked for a sign-in instead. What was begun ahead follows a message.
    const failure = (isFirst ? missingServer(prepared) : undefined) ?? repeatedTool(prepared.spec);
    if (failure) return failure;
    const given = ahead || input.threadId !== ROOT_THREAD ? undefined : givenLast(await conversation);
    const message = new MessageAssembler({
      turnId: input.turnId,
      plan: input,
      // Its client has the message.
      attempt: given ? 0 : attempt,
      prepared,
      bus,
      given,
      draftToolset: given && (await this.#draftToolset(input, given, prepared)),
    });
    this.#begin(message);
    if (isFirst && !mayClaim) speculativeCalls.forgo(input.turnId);
    if (prepared.signIns.length > 0 || prepared.compaction) {
      this.#wasCalled = false;
      this.#mayBeShown = attempt > 1;
      return prepared.signIns.length === 0 && prepared.compaction
        ? this.#compact(prepared, prepared.compaction)
        : prepared.signIns;
    }
    if (given) this.#wasCalled = false;
    const answer = () => ahead?.chunks ?? prepared.provider.stream(this.#patient(prepared.request), this.#signal);
    await message.read(given ? chunksOf(given) : answer());
    return undefined;
  }

  /** The agent's tools as a draft of the client would have them, if it has brought calls that the agent has not made. */
  async #draftToolset(
    { sessionId, owner }: ModelCall,
    { draftRoles, toolCalls }: GivenMessage,
    { spec }: PreparedModelCall,
  ): Promise<Toolset | undefined> {
    if (!draftRoles || toolCalls.every(({ isMade, result }) => isMade ?? result)) return undefined;
    return this.#dependencies.toolsets.load(spec, { sessionId, owner: { ...owner, draftRoles } }, this.#signal);
  }

  /** Compacts the conversation, once, if the model rejects it as too long, or in words that may mean this. */
  async #answerOrCompact(): Promise<Instead | undefined> {
    try {
      return await this.#answer();
    } catch (error) {
      const isRejected = error instanceof ModelError && error.mayBeTooLong && !this.#message?.isStreaming;
      if (!isRejected || this.#isCompacting || this.#signal.aborted) throw error;
      this.#wasCalled = false;
      const { contextTokens, namesContext } = error;
      if (contextTokens !== undefined && namesContext && this.#message)
        this.#dependencies.models.noteContext(this.#message.target, contextTokens);
      const input = await this.#call();
      const call = { ...input, fallback: this.details.fallback, isRetry: this.#isRetry, rejected: error };
      const prepared = await prepareModelCall(this.#dependencies, call, this.#conversation(input), this.#signal);
      if (!prepared.compaction) throw error;
      try {
        return await this.#compact(prepared, prepared.compaction);
      } catch (failure) {
        // It was not the length: what the model has said first is the reason.
        const isOther = failure instanceof ModelError && !failure.isRetryable && !error.isTooLong;
        if (!isOther) throw failure;
        this.#isCompacting = false;
        throw error;
      }
    }
  }

  /** The text of a summary is not published: readers get it with its record. */
  async #compact(prepared: PreparedModelCall, compaction: Compaction): Promise<NewRecord> {
    this.#isCompacting = true;
    const { turnId, messageId } = this.#input;
    const { bus } = this.#dependencies;
    const plan = { ...this.#input, messageId: `${messageId}_summary` };
    const ask = async (request: ModelRequest): Promise<string> => {
      const message = new MessageAssembler({ turnId, plan, attempt: 0, prepared, bus });
      this.#message = message;
      this.#wasCalled = true;
      await message.read(prepared.provider.stream(this.#patient(request), this.#signal));
      this.#add(message.usage ?? UNREPORTED);
      this.#wasCalled = false;
      if (message.content.trim()) return message.content;
      throw new ModelError(this.details.failures === 0 ? 'empty_answer' : 'bad_request', 'the model gave no summary');
    };
    const record = await compactConversation(compaction, await this.#call(), { ...prepared, ask });
    this.#recordUsage();
    return { ...record, ...reported(this.details.usage) };
  }

  /** Whether an earlier attempt called the model, or may have: such a retry is made although a budget was reached. */
  readonly #isRetry = (): boolean => this.details.isCalled === true;

  /** The request, which may take longer if the model was silent in earlier attempts. */
  #patient(request: ModelRequest): ModelRequest {
    const { failed, failures } = this.details;
    const stalls = failed.slice(failed.length - failures).filter(({ failure }) => failure === 'stalled');
    return stalls.length > 0 ? { ...request, stalls: stalls.length } : request;
  }

  #begin(message: MessageAssembler): void {
    this.#message = message;
    this.#wasCalled = true;
    // For later calls: this one does not wait for it.
    void this.#dependencies.models.learnContext(message.target);
    const { turnId, connectsServers } = this.#input;
    if (!connectsServers) return;
    for (const server of message.toolset.unavailable) {
      this.#dependencies.log.warn({ turnId, ...server }, 'an MCP server is not available');
    }
  }

  /** A server that drops the beginning of a conversation has shown the size of its context: later calls fit into it. */
  #noteTruncation(): void {
    const tokens = this.#message?.truncatedInput;
    if (!this.#message || tokens === undefined) return;
    const { models, metrics, losses } = this.#dependencies;
    const { providerName: provider, model } = this.#message.target;
    models.noteContext(this.#message.target, tokens);
    metrics.modelInputsTruncated.inc({ provider });
    losses.warn(
      `truncated ${provider}/${model}`,
      { provider, model, readTokens: tokens },
      "a model's server drops the beginning of conversations; they are compacted to what it has read: " +
        'raise its context length, such as OLLAMA_CONTEXT_LENGTH',
    );
  }

  get #runId(): string {
    return this.#context.info.workflowExecution?.runId ?? '';
  }

  /** The input with what is constant in its turn and thread. */
  async #call(): Promise<ModelCall> {
    this.#known ??= await this.#dependencies.conversations.call(this.#input, this.#runId);
    return this.#known;
  }

  #conversation(call: ModelCall): Promise<UnsequencedRecord[]> {
    return this.#dependencies.conversations.load(call, this.#runId, this.#signal);
  }

  /** The owner of the session, and the author of the newest user message. */
  async #requesters(call: ModelCall): Promise<string[]> {
    const author = await this.#dependencies.conversations.newestAuthor(call, this.#runId, this.#signal);
    const { subjectId: owner } = call.owner;
    return author === undefined || author === owner ? [owner] : [owner, author];
  }

  async #result(end: MessageOutcome, signIns: ServerSignIn[] = []): Promise<CallModelResult> {
    const { blobs } = this.#dependencies;
    const input = await this.#call();
    const { sessionId } = input;
    const status = end.status === 'sign_in_required' ? 'cancelled' : end.status;
    this.#recordUsage();
    const { usage, failed } = this.details;
    const finishReason = status === 'cancelled' ? 'cancelled' : 'error';
    const handling = {
      refusal: refusalOf(input),
      maxWaiting: input.subAgent ? MAX_WAITING_CALLS : Infinity,
      startSubAgent: (call: SubAgentCall) =>
        retryWhileUnavailable(() => startSubAgent(this.#dependencies, input, call), this.#signal),
      delegate: (call: Pick<SubAgentCall, 'index' | 'started'>) => routeDelegation(input, call),
      requesters: () => retryWhileUnavailable(() => this.#requesters(input), this.#signal),
      storeFile: async (file: FileContent) => {
        const store = () => storeFiles([file], { blobs, sessionId, maxInlineBytes: 0 });
        const [stored] = await storeWhileUnavailable(store, this.#signal);
        if (!stored) throw new Error('no file was stored');
        return stored;
      },
      loadBlob: (blob: string) => retryWhileUnavailable(() => blobs.get(sessionId, blob), this.#signal),
    };
    const answer: NewRecord[] =
      (this.#isCompacting ? undefined : await this.#message?.records(status, usage, handling)) ??
      emptyAnswer(input, finishReason, reported(usage).usage);
    const message = answer.find((record) => record.kind === 'model.message');
    const outcome = outcomeOf(end, message, this.#message?.repairs ?? 0);
    const spec = outcome.status === 'answered' ? this.#message?.spec : undefined;
    const refresh = spec ? refreshAfter({ spec, input, records: answer }) : [];
    const records =
      signIns.length > 0
        ? this.#pausing(answer, signIns)
        : [...answer, ...endOfSubAgent(input, answer, outcome), ...refresh];
    if (message && failed.length > 0) message.attempts = failed;
    return this.#append(records, outcome);
  }

  /** Stores the records of a result, and begins what follows its message. */
  async #append(answer: NewRecord[], outcome: Outcome): Promise<CallModelResult> {
    const { conversations, stepsAhead } = this.#dependencies;
    const stamp = randomUUID();
    // No other attempt would produce the message of a cancelled call, so it is stored also while the worker drains.
    const isStopped = outcome.status === 'cancelled' || outcome.status === 'sign_in_required';
    const until = isStopped ? NEVER : this.#signal;
    const complete = await this.#store(answer, until);
    // A further attempt begins nothing: an earlier one may have, and its tools may be what has killed its worker.
    const message = answer.find((record) => record.kind === 'model.message');
    const { toolset, inSequence } = this.#context.info.attempt === 1 && this.#message ? this.#message : {};
    if (toolset) stepsAhead.messageEnded(await this.#call(), stamp, answer, { tools: toolset.tools, inSequence });
    const extended = toolset && message && (await this.#storeWithResults(complete, { stamp, message }));
    const { records, stored } = extended ?? complete;
    conversations.remember({ turnId: this.#input.turnId, stamp }, records);
    if (extended && !this.#signal.aborted) stepsAhead.resultsEnded(stamp);
    return { records: stored, stamp, outcome };
  }

  /** The message is complete and paid for, so an unavailable store is retried. @throws PayloadTooLarge */
  async #store(records: NewRecord[], until: AbortSignal): Promise<StoredRecords> {
    const { blobs } = this.#dependencies;
    const { sessionId } = this.#input;
    const store = () => offloadResult(records, { blobs, sessionId });
    return { records, stored: await storeWhileUnavailable(store, until) };
  }

  /**
   * Stores the records with the results of the message's calls, if these are known at once. Not if texts were moved to the
   * blob store, which would be written twice: the results fit beside what the history has inline.
   */
  async #storeWithResults(
    { records, stored }: StoredRecords,
    ended: { stamp: string; message: ModelMessage },
  ): Promise<StoredRecords | undefined> {
    if (stored !== records) return undefined;
    const results = await this.#dependencies.stepsAhead.earlyResults(await this.#call(), ended, this.#signal);
    return results && this.#store(withEarlyResults(records, ended.message, results), this.#signal);
  }

  /** The records of a model call that waits for sign-ins; a message that readers may have seen ends as cancelled. */
  #pausing(answer: NewRecord[], servers: ServerSignIn[]): NewRecord[] {
    const shown = answer.filter(({ kind }) => kind !== 'model.message' || this.#mayBeShown);
    const { threadId } = this.#input;
    return [...shown, { kind: 'mcp.auth_required', at: new Date().toISOString(), threadId, servers, calls: [] }];
  }

  /** The model was not called. */
  async #held(budget: BudgetReport): Promise<CallModelResult> {
    this.#wasCalled = false;
    const result = await this.#append([], { status: 'budget_reached' });
    this.#dependencies.metrics.modelCallsRefused.inc({ scope: budget.scope });
    return { ...result, budget };
  }

  async #stopped(): Promise<CallModelResult> {
    if (this.#context.cancellationSignal.aborted && stopReason(this.#context) === 'cancelled') {
      return this.#result({ status: 'cancelled' });
    }
    this.#recordUsage();
    if (this.#dependencies.draining.aborted) {
      throw ApplicationFailure.retryable('the worker is shutting down', WORKER_SHUTDOWN);
    }
    throw new CancelledFailure('the workflow no longer waits for this model call');
  }

  async #failed(error: unknown): Promise<CallModelResult> {
    // What the model has answered cannot be stored: it must not be called again.
    if (error instanceof ApplicationFailure) throw error;
    if (isUnavailable(error)) {
      if (error instanceof BudgetsUnavailable) this.#wasCalled = false;
      this.#recordUsage();
      throw error;
    }
    const failure = failureOf(error);
    if (failure === error && failure.isRefusal && !this.#message?.isStreaming) this.#wasCalled = false;
    if (failure !== error) {
      const { turnId, messageId } = this.#input;
      const fields = { err: error, turnId, messageId, ...this.called };
      this.#dependencies.log.error(fields, 'a model call failed unexpectedly');
    }
    const advice = await this.#adviceOn(failure);
    const wait = this.#planRetry(failure, advice === undefined ? Infinity : FIRST_CONTACT_MS);
    if (failure === error) this.#logFailure(failure, wait);
    const reason = failure === error ? this.#reasonOf(failure, wait, advice) : failure.message;
    if (wait === undefined) {
      if (error instanceof PayloadTooLarge) {
        this.#message?.finish();
        this.#message = undefined;
      }
      const message = this.#isCompacting
        ? `The conversation is too long, and could not be summarized: ${reason}`
        : reason;
      const { failure: kind, status } = failure;
      const modelFailure = { kind, ...(status !== undefined && { status }) };
      return failUnlessTransient(() =>
        this.#result({
          status: 'error',
          message,
          ...(failure === error && { code: 'model_failed', modelFailure }),
        }),
      );
    }
    this.#recordUsage();
    throw ApplicationFailure.create({
      type: failure.failure,
      message: reason,
      nextRetryDelay: wait,
      // It has a line in the log: the SDK's own, which names neither provider nor reason, is for debugging.
      category: ApplicationFailureCategory.BENIGN,
    });
  }

  /**
   * Which model has failed, how, and what its provider says; with the tools, if it complains of what was sent of them, and
   * with the wait that it asks for, if that is why the model is not called again.
   */
  #reasonOf(
    { failure, status, message, isRetryable, retryAfterMs = 0 }: ModelError,
    waitMs: number | undefined,
    advice: string | undefined,
  ): string {
    if (!this.#message) return message;
    const { target, toolset } = this.#message;
    const answered = status === undefined ? '' : ` answered ${status}`;
    const isOfTools = failure === 'bad_request' && /schema|grammar|tool|function/i.test(message);
    const names = [...toolset.tools.keys()];
    const shown = [...names.slice(0, MAX_NAMED_TOOLS), ...(names.length > MAX_NAMED_TOOLS ? ['…'] : [])];
    const tools = isOfTools && names.length > 0 ? ` (the agent's tools: ${shown.join(', ')})` : '';
    const { retrySeconds } = this.#dependencies.config.model;
    const isTooLong = this.details.failingMs + retryAfterMs > retrySeconds * 1000;
    const asked =
      waitMs === undefined && isRetryable && retryAfterMs > 0 && isTooLong
        ? ` (it asks for a wait of ${Math.ceil(retryAfterMs / 1000)} s; EVERTURN_MODEL_RETRY_SECONDS allows ${retrySeconds} s for all waits)`
        : '';
    const reason = `${target.providerName}/${target.model}${answered}: ${message}${tools}${asked}`;
    return advice === undefined ? reason : `${reason}. ${advice}`;
  }

  /** What to check if the model's server cannot be reached, and never could; undefined for other failures. */
  async #adviceOn(error: ModelError): Promise<string | undefined> {
    const target = this.#message?.target;
    const advice = target && wrongAddress(error, target);
    if (!target || advice === undefined || (await this.#dependencies.serverContacts.hasAnswered(target)))
      return undefined;
    return advice;
  }

  /** For operators, without the provider's text, which may quote the conversation. */
  #logFailure(error: ModelError, waitMs: number | undefined): void {
    const { failure, status } = error;
    this.#dependencies.log.warn(
      { turnId: this.#input.turnId, ...this.called, failure, status, ...networkCause(error), waitMs },
      waitMs === undefined ? 'a model call failed' : 'a model call failed; it is repeated',
    );
  }

  /** The model that was called. The address is that of its setting: one at which a connection has failed says more. */
  get called(): Called {
    const target = this.#message?.target;
    if (!target) return {};
    const { providerName: provider, model } = target;
    const address = addressOf(target);
    return { provider, model, ...(address !== undefined && { address }) };
  }

  /**
   * Counts a failure and returns the milliseconds until the next attempt, or undefined if the error is permanent or the
   * provider has failed for too long. The time in which it sent chunks, or in which no worker called it, does not
   * count.
   *
   * @param maxMs for how long, if that is shorter than configured
   */
  #planRetry(error: ModelError, maxMs: number): number | undefined {
    const { isRetryable, retryAfterMs = 0 } = error;
    if (!isRetryable) return undefined;
    const { details } = this;
    const wait = Math.max(retryAfterMs, backoffMs(details.failures, { first: FIRST_WAIT_MS, max: MAX_WAIT_MS }));
    const elapsed = Date.now() - (this.#message?.lastChunkAt ?? this.#startedAt);
    if (error.isOutage && this.#message?.hasFallback && this.#isWorthFallback(details.failingMs + elapsed + wait)) {
      this.#noteFailure(error);
      this.#dependencies.metrics.modelFallbacks.inc({ provider: this.#message.target.providerName });
      details.fallback += 1;
      details.failures = 0;
      details.failingMs = 0;
      return FALLBACK_WAIT_MS;
    }
    // The first failure is always retried: a stalled model may be silent for longer than the limit.
    if (details.failingMs + wait > Math.min(maxMs, this.#dependencies.config.model.retrySeconds * 1000))
      return undefined;
    this.#noteFailure(error);
    details.failures += 1;
    details.failingMs += elapsed + wait;
    return wait;
  }

  #isWorthFallback(failingMs: number): boolean {
    return failingMs > Math.min(FALLBACK_AFTER_MS, this.#dependencies.config.model.retrySeconds * 1000);
  }

  #noteFailure({ failure }: ModelError): void {
    if (!this.#message) return;
    const { providerName: provider, model } = this.#message.target;
    this.details.failed.push({ provider, model, failure });
  }

  /** Adds the usage of this attempt, once. It counts also if the next attempt discards the message. */
  #recordUsage(): void {
    if (this.details.accounted === this.#context.info.attempt) return;
    this.details.accounted = this.#context.info.attempt;
    if (this.#wasCalled) this.#add(this.#message?.usage ?? UNREPORTED);
  }

  #add(usage: Usage): void {
    this.details.isCalled = true;
    this.details.usage = addUsage(this.details.usage, usage);
  }
}

/** The message with which the conversation of the turn's client ends, unless the turn has it already. */
function givenLast(records: UnsequencedRecord[]): GivenMessage | undefined {
  const created = records.find((record) => record.kind === 'turn.created');
  const isDone = records.some((record) => record.kind === 'model.message' && record.isGiven);
  return isDone ? undefined : created?.conversation?.given?.last;
}

/** A given message as if a model had answered it. */
async function* chunksOf(message: GivenMessage): AsyncGenerator<ModelChunk> {
  const { toolCalls, draftRoles: _, sections: __, images: ___, provider: ____, model: _____, ...text } = message;
  yield {
    ...text,
    toolCalls: toolCalls.map((given, index) => {
      const { result: ______, isMade: _______, ...call } = given;
      return { index, ...call };
    }),
    finishReason: toolCalls.length > 0 ? 'tool_calls' : 'stop',
  };
}

/** The model error for any failure. Unexpected errors are retried too, for a limited time. */
function failureOf(error: unknown): ModelError {
  if (error instanceof ModelError) return error;
  if (error instanceof ConversationLost) return new ModelError('bad_request', error.message, { cause: error });
  if (error instanceof PayloadTooLarge)
    return new ModelError('bad_request', `The model's answer cannot be stored: ${error.message}`);
  const message = errorMessage(error);
  return new ModelError('overloaded', `internal error: ${message}`, { cause: error });
}
