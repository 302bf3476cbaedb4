import { randomUUID } from 'node:crypto';
import { ApplicationFailure, CancelledFailure, Context } from '@temporalio/activity';
import { ApplicationFailureCategory } from '@temporalio/common';
import { offloadResult, PayloadTooLarge } from '../src/blobs/offload.ts';
import { storeFiles, type FileContent } from '../src/blobs/store-files.ts';
import type { Called } from '../src/core/attempts.ts';
import type { GivenMessage } from '../src/core/given-conversation.ts';
import type { CallModelInput, CallModelResult } from '../src/core/history.ts';
import type { ModelCall } from '../src/core/model-call.ts';
import type { NewRecord, UnsequencedRecord } from '../src/core/records/log.ts';
import { emptyResponse, type ModelMessage } from '../src/core/records/message.ts';
import type { ServerSignIn } from '../src/core/records/servers.ts';
import { ROOT_THREAD, type ThreadEnding } from '../src/core/records/threads.ts';
import type { TurnError } from '../src/core/records/turn.ts';
import { UNREPORTED } from '../src/core/records/usage.ts';
import { ModelError } from '../src/models/model-error.ts';
import { networkCause } from '../src/models/network-cause.ts';
import { addressOf, wrongAddress } from '../src/models/wrong-address.ts';
import type { ModelRequest } from '../src/models/provider.ts';
import type { BudgetReport } from '../src/core/budget.ts';
import type { AgentSpec } from '../src/spec/agent-spec.ts';
import { codeRules } from '../src/features/code/permissions/code-rules.ts';
import { BudgetReached, BudgetsUnavailable } from '../src/features/budgets/shared-budgets.ts';
import { ConversationLost } from '../src/engine/conversations.ts';
import { isUnavailable } from '../src/engine/unavailable.ts';
import { MessageAssembler, reported } from '../src/agents/message-assembler.ts';
import { announceRetry } from './announce-retry.ts';
import type { Dependencies } from './dependencies.ts';
import { chunksOf, givenLast } from './given-message.ts';
import { endAfter, endThread } from './end-thread.ts';
import { GIVEN_UP, stopReason, withHeartbeat } from '../src/temporal/activity-heartbeat.ts';
import { refreshAfter, repeatedTool } from '../src/features/run-support/client-toolkits.ts';
import type { Compaction, PreparableCall } from '../src/agents/model-call-part.ts';
import { prepareModelCall, type PreparedModelCall } from '../src/agents/prepare-model-call.ts';
import { refusalOf } from '../src/agents/end-sub-agent.ts';
import { missingServer } from '../src/agents/missing-server.ts';
import { outcomeOf } from '../src/agents/structured-output.ts';
import { MAX_WAITING_CALLS } from '../src/core/sub-agents.ts';
import type { Toolset } from '../src/tools/toolset.ts';
import { ModelAttempts } from './model-attempts.ts';
import { withEarlyResults } from '../src/features/speculation/early-results.ts';
import { WORKER_SHUTDOWN } from '../src/temporal/own-attempts.ts';
import { rejectResetRun } from '../src/temporal/reject-reset-run.ts';
import { failUnlessTransient, retryWhileUnavailable, storeWhileUnavailable } from '../src/engine/retry.ts';
import { NEVER_ABORTED } from '../src/lib/abort.ts';
import { errorMessage } from '../src/lib/errors.ts';

/**
 * How long a model server is retried that cannot be reached and has never responded to this installation: it is not
 * running yet, or its address is wrong, and the user should see the error soon.
 */
const FIRST_CONTACT_MS = 10_000;

type Outcome = CallModelResult['outcome'];

type MessageOutcome = Outcome & { status: 'answered' | 'cancelled' | 'sign_in_required' | 'error' };

/** Records, and their form in the history (`stored`): large texts are in the blob store. */
interface StoredRecords {
  records: NewRecord[];
  stored: NewRecord[];
}

/** The end of an attempt that does not call the model for the message: a compaction, sign-ins, or an error. */
type Instead = NewRecord | ServerSignIn[] | TurnError;

/**
 * Requests the next message of a thread from the model. Deltas are published on the live bus as they arrive; the result
 * is the finished message, with the results of its calls if these are known at once.
 *
 * - If the workflow cancels, the result is the message so far.
 * - If this worker stops, or the provider fails with a transient error, it throws, and another attempt starts the same
 *   message again.
 * - If the provider is overloaded or unavailable for 10 s and the agent has another model, the next attempt starts the
 *   message with that one.
 * - If the conversation has become too long, the result is what it is compacted to, and the workflow calls again.
 * - If a budget that the turn shares with others was reached, the result has the report, and the workflow calls again.
 * - If the provider fails permanently, or the last model fails for longer than configured (than `FIRST_CONTACT_MS` if
 *   it cannot be reached and never could), the result is the message so far and the provider's error.
 * - If a server that the agent requires is unavailable, the result of the first call is an empty message and an error.
 * - If too many messages of the model have not fitted the agent's schema, the result is the last one and an error.
 * - If too many attempts were lost, the result is an empty message and an error.
 */
export function createCallModel(dependencies: Dependencies): (input: CallModelInput) => Promise<CallModelResult> {
  return async (input) => {
    rejectResetRun(input);
    const call = new ModelCallAttempt(dependencies, input);
    try {
      return await withHeartbeat(async (attempts) => attempts.addTo(await call.run()), {
        details: () => call.attempts.details,
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
  readonly attempts: ModelAttempts;
  readonly #dependencies: Dependencies;
  readonly #input: CallModelInput;
  readonly #context = Context.current();
  readonly #signal: AbortSignal;
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
    this.attempts = new ModelAttempts(dependencies);
  }

  async run(): Promise<CallModelResult> {
    try {
      if (this.#input.ends) return await this.#end(this.#input.ends);
      const instead = await this.#readOrCompact();
      if (this.#signal.aborted) return await this.#stopped();
      if (instead && 'kind' in instead) return await this.#append([instead], { status: 'compacted' });
      if (instead && 'status' in instead) return await this.#result(instead);
      if (instead) return await this.#result({ status: 'sign_in_required' }, instead);
      // Providers occasionally return an empty message; a retry usually succeeds. A second empty one is accepted.
      if (this.#message?.isEmpty && this.attempts.details.failures === 0) {
        throw new ModelError('empty_answer', 'the model gave an empty answer');
      }
      this.#noteTruncation();
      const mayBeCutOff = this.#message?.mayBeCutOff === true && { mayBeCutOff: true as const };
      return await this.#result(this.#message?.failure ?? { status: 'answered', ...mayBeCutOff });
    } catch (error) {
      if (error instanceof BudgetReached && !this.#signal.aborted) return this.#budgetReached(error.report);
      return this.#signal.aborted ? await this.#stopped() : await this.#failed(error);
    }
  }

  async #end(ends: ThreadEnding): Promise<CallModelResult> {
    const call = await this.#call();
    const conversation = await this.#conversation(call);
    return endThread(call, { ends, conversation, signal: this.#signal }, this.#dependencies);
  }

  /** Ends the message after too many lost attempts. */
  giveUp(): Promise<CallModelResult> {
    return this.#result({ status: 'error', message: `The model call was abandoned: ${GIVEN_UP}` });
  }

  /** Marks the message that the attempt has published, if any, as no longer in progress. */
  finish(): void {
    this.#message?.finish();
  }

  /**
   * Reads the model's response into the message. The first model call of a turn uses the turn's speculative call, if
   * there is one, and a later one the call that began with the last result. Later attempts use neither: the worker that
   * started them may be the one that was lost. If the model was not called, returns the reason.
   */
  async #readResponse(): Promise<Instead | undefined> {
    const { speculativeCalls, stepsAhead, bus } = this.#dependencies;
    const { attempt } = this.#context.info;
    const input = await this.#call();
    const isFirst = input.step === 1 && input.threadId === ROOT_THREAD;
    // No speculative call is started for a conversation that has to be compacted first, nor for a forced answer.
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
    // A call that began early does not need the conversation, but the next call extends what this reads.
    conversation.catch(() => undefined);
    const ahead = attempt === 1 ? await stepsAhead.claimModelCall(input, this.#signal) : undefined;
    const prepared = ahead?.prepared ?? (await this.#prepare(input, conversation, { mayWait: true }));
    // Names are checked in each step: the first may request a sign-in. A call that began early follows a message.
    const failure = (isFirst ? missingServer(prepared) : undefined) ?? repeatedTool(prepared.spec);
    if (failure) return failure;
    const given = ahead || input.threadId !== ROOT_THREAD ? undefined : givenLast(await conversation);
    const message = new MessageAssembler({
      turnId: input.turnId,
      plan: input,
      // Not published: the client has the message.
      attempt: given ? 0 : attempt,
      prepared,
      bus,
      given,
      draftToolset: given && (await this.#draftToolset(input, given, prepared)),
    });
    this.#begin(message);
    if (isFirst && !mayClaim) speculativeCalls.skip(input.turnId);
    if (prepared.signIns.length > 0 || prepared.compaction) {
      this.#wasCalled = false;
      this.#mayBeShown = attempt > 1;
      return prepared.signIns.length === 0 && prepared.compaction
        ? this.#compact(prepared, prepared.compaction)
        : prepared.signIns;
    }
    if (given) this.#wasCalled = false;
    const response = () =>
      ahead?.chunks ?? prepared.provider.stream(this.attempts.patient(prepared.request), this.#signal);
    await message.read(given ? chunksOf(given) : response());
    return undefined;
  }

  #prepare(
    input: ModelCall,
    conversation: Promise<UnsequencedRecord[]>,
    more: Pick<PreparableCall, 'mayWait' | 'rejected'>,
  ): Promise<PreparedModelCall> {
    const { details, isRetry } = this.attempts;
    const call = { ...input, fallback: details.fallback, isRetry, ...more };
    return prepareModelCall(this.#dependencies, call, conversation, this.#signal);
  }

  /** The agent's tools with the rights of a draft of the client, for sent calls that the agent has not made. */
  async #draftToolset(
    { sessionId, owner }: ModelCall,
    { draftRoles, toolCalls }: GivenMessage,
    { spec }: PreparedModelCall,
  ): Promise<Toolset | undefined> {
    if (!draftRoles || toolCalls.every(({ isMade, result }) => isMade ?? result)) return undefined;
    return this.#dependencies.toolsets.load(spec, { sessionId, owner: { ...owner, draftRoles } }, this.#signal);
  }

  /** Compacts the conversation, once, if the model rejects it as too long, or in words that may mean this. */
  async #readOrCompact(): Promise<Instead | undefined> {
    try {
      return await this.#readResponse();
    } catch (error) {
      const isRejected = error instanceof ModelError && error.mayBeTooLong && !this.#message?.isStreaming;
      if (!isRejected || this.#isCompacting || this.#signal.aborted) throw error;
      this.#wasCalled = false;
      const { contextTokens, namesContext } = error;
      if (contextTokens !== undefined && namesContext && this.#message)
        this.#dependencies.models.noteContext(this.#message.prepared.target, contextTokens);
      const input = await this.#call();
      const prepared = await this.#prepare(input, this.#conversation(input), { rejected: error });
      if (!prepared.compaction) throw error;
      try {
        return await this.#compact(prepared, prepared.compaction);
      } catch (failure) {
        // The length was not the problem: the first error of the model is the reason.
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
      await message.read(prepared.provider.stream(this.attempts.patient(request), this.#signal));
      this.attempts.add(message.usage ?? UNREPORTED);
      this.#wasCalled = false;
      if (message.content.trim()) return message.content;
      const isFirst = this.attempts.details.failures === 0;
      throw new ModelError(isFirst ? 'empty_answer' : 'bad_request', 'the model gave no summary');
    };
    const record = await compaction(ask);
    this.#recordUsage();
    return { ...record, ...reported(this.attempts.details.usage) };
  }

  #begin(message: MessageAssembler): void {
    this.#message = message;
    this.#wasCalled = true;
    // For later calls: this one does not wait for it.
    void this.#dependencies.models.learnContext(message.prepared.target);
    const { turnId, connectsServers } = this.#input;
    if (!connectsServers) return;
    for (const server of message.prepared.toolset.unavailable) {
      this.#dependencies.log.warn({ turnId, ...server }, 'an MCP server is not available');
    }
  }

  /** If a server drops the beginning of a conversation, the size of its context is known: later calls fit into it. */
  #noteTruncation(): void {
    const tokens = this.#message?.truncatedInput;
    if (!this.#message || tokens === undefined) return;
    const { models, metrics, losses } = this.#dependencies;
    const { providerName: provider, model } = this.#message.prepared.target;
    models.noteContext(this.#message.prepared.target, tokens);
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
    const { blobs, catalog } = this.#dependencies;
    const input = await this.#call();
    const { sessionId } = input;
    const status = end.status === 'sign_in_required' ? 'cancelled' : end.status;
    this.#recordUsage();
    const { usage, failed } = this.attempts.details;
    const finishReason = status === 'cancelled' ? 'cancelled' : 'error';
    const handling = {
      refusal: refusalOf(input),
      maxWaiting: input.subAgent ? MAX_WAITING_CALLS : Infinity,
      modelCall: input,
      signal: this.#signal,
      requesters: () => retryWhileUnavailable(() => this.#requesters(input), this.#signal),
      rules: (spec: AgentSpec) => retryWhileUnavailable(() => codeRules(catalog, spec, input), this.#signal),
      storeFile: async (file: FileContent) => {
        const store = () => storeFiles([file], { blobs, sessionId, maxInlineBytes: 0 });
        const [stored] = await storeWhileUnavailable(store, this.#signal);
        if (!stored) throw new Error('no file was stored');
        return stored;
      },
      loadBlob: (blob: string) => retryWhileUnavailable(() => blobs.get(sessionId, blob), this.#signal),
    };
    const response: NewRecord[] =
      (this.#isCompacting ? undefined : await this.#message?.records(status, usage, handling)) ??
      emptyResponse(input, finishReason, reported(usage).usage);
    const message = response.find((record) => record.kind === 'model.message');
    const outcome = outcomeOf(end, message, this.#message?.prepared.repairs ?? 0);
    const spec = outcome.status === 'answered' ? this.#message?.prepared.spec : undefined;
    const refresh = spec ? refreshAfter({ spec, input, records: response }) : [];
    const ended = { response, outcome, conversation: () => this.#conversation(input) };
    const records =
      signIns.length > 0
        ? this.#pausing(response, signIns)
        : [...response, ...(await endAfter(input, ended, this.#dependencies)), ...refresh];
    if (message && failed.length > 0) message.attempts = failed;
    return this.#append(records, outcome);
  }

  /** Stores the records of a result, and begins what follows its message. */
  async #append(response: NewRecord[], outcome: Outcome): Promise<CallModelResult> {
    const { conversations, stepsAhead } = this.#dependencies;
    const stamp = randomUUID();
    // No other attempt would produce the message of a cancelled call, so it is stored also while the worker drains.
    const isStopped = outcome.status === 'cancelled' || outcome.status === 'sign_in_required';
    const until = isStopped ? NEVER_ABORTED : this.#signal;
    const complete = await this.#store(response, until);
    // Only the first attempt begins what follows: an earlier one may have, and its tools may have killed its worker.
    const message = response.find((record) => record.kind === 'model.message');
    const prepared = this.#context.info.attempt === 1 ? this.#message?.prepared : undefined;
    if (prepared) stepsAhead.messageEnded(await this.#call(), stamp, response, prepared);
    const extended = prepared && message && (await this.#storeWithResults(complete, { stamp, message }));
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
   * Stores the records with the results of the message's calls, if these are known at once. Does nothing if texts were
   * moved to the blob store, since they would be written twice: the results fit beside what the history has inline.
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
  #pausing(response: NewRecord[], servers: ServerSignIn[]): NewRecord[] {
    const shown = response.filter(({ kind }) => kind !== 'model.message' || this.#mayBeShown);
    const { threadId } = this.#input;
    return [...shown, { kind: 'mcp.auth_required', at: new Date().toISOString(), threadId, servers, calls: [] }];
  }

  /** A shared budget was reached, so the model was not called. */
  async #budgetReached(budget: BudgetReport): Promise<CallModelResult> {
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
    // The model's response cannot be stored: the model must not be called again.
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
    const maxMs = advice === undefined ? Infinity : FIRST_CONTACT_MS;
    const wait = this.attempts.planRetry(failure, this.#message, maxMs);
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
      // `#logFailure` has logged it: the SDK's own line, which names neither provider nor reason, is for debugging.
      category: ApplicationFailureCategory.BENIGN,
    });
  }

  #reasonOf(failure: ModelError, waitMs: number | undefined, advice: string | undefined): string {
    if (!this.#message) return failure.message;
    const reason = this.attempts.reasonOf(failure, this.#message.prepared, waitMs);
    return advice === undefined ? reason : `${reason}. ${advice}`;
  }

  /** What to check if the model's server cannot be reached, and never could; undefined for other failures. */
  async #adviceOn(error: ModelError): Promise<string | undefined> {
    const target = this.#message?.prepared.target;
    const advice = target && wrongAddress(error, target);
    if (!target || advice === undefined || (await this.#dependencies.serverContacts.hasResponded(target)))
      return undefined;
    return advice;
  }

  /** Logs a failure for operators, without the provider's text, which may quote the conversation. */
  #logFailure(error: ModelError, waitMs: number | undefined): void {
    const { failure, status } = error;
    this.#dependencies.log.warn(
      { turnId: this.#input.turnId, ...this.called, failure, status, ...networkCause(error), waitMs },
      waitMs === undefined ? 'a model call failed' : 'a model call failed; it is repeated',
    );
  }

  #recordUsage(): void {
    this.attempts.end(this.#wasCalled ? (this.#message?.usage ?? UNREPORTED) : undefined);
  }

  /** The model that was called. `address` is the configured one: the address of a failed connection is more precise. */
  get called(): Called {
    const target = this.#message?.prepared.target;
    if (!target) return {};
    const { providerName: provider, model } = target;
    const address = addressOf(target);
    return { provider, model, ...(address !== undefined && { address }) };
  }
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
