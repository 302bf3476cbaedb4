import { randomUUID } from 'node:crypto';
import { ApplicationFailure, CancelledFailure, Context } from '@temporalio/activity';
import { isRetryableStoreError, offloadResult, PayloadTooLarge } from '../src/blobs/offload.ts';
import type { CallModelInput, CallModelResult } from '../src/core/history.ts';
import { addUsage, NO_USAGE, UNREPORTED, type ModelMessage, type Usage } from '../src/core/records.ts';
import { inputCharacters } from '../src/models/input-breakdown.ts';
import { ModelError } from '../src/models/model-error.ts';
import type { ModelChunk } from '../src/models/provider.ts';
import { isUnavailable } from '../src/engine/unavailable.ts';
import { MessageAssembler, reported } from '../src/agents/message-assembler.ts';
import type { Dependencies } from './dependencies.ts';
import { detailsLeft, GIVEN_UP, stopReason, withHeartbeat } from '../src/temporal/activity-heartbeat.ts';
import { prepareModelCall, type PreparedModelCall } from '../src/agents/prepare-model-call.ts';
import { rejectResetRun } from '../src/temporal/reject-reset-run.ts';
import { retryWhileUnavailable } from '../src/engine/retry.ts';
import { NEVER } from '../src/lib/abort.ts';
import { backoffMs } from '../src/lib/backoff.ts';
import { errorMessage } from '../src/lib/errors.ts';

/** What an attempt tells the next one. */
interface AttemptDetails {
  /** How often the provider has failed, and for how many milliseconds in all, waits included. */
  failures: number;
  failingMs: number;
  /** What the attempts before the `accounted`-th have cost, as far as they were told. */
  usage: Usage;
  accounted: number;
}

/** Between attempts at a provider that fails, unless it says how long to wait. */
const FIRST_WAIT_MS = 500;
const MAX_WAIT_MS = 30_000;

type Outcome = CallModelResult['outcome'];

/**
 * Asks the model for the next message of a thread. The deltas go out on the live bus as they come; the finished message
 * is the result.
 *
 * - The workflow cancels: the message so far is the result.
 * - This worker stops, or the provider fails in a way that may pass: throws, and another attempt starts the same
 *   message again.
 * - The provider fails for good, or for longer than it is given: the message so far and the provider's words are the
 *   result.
 * - Too many attempts were lost: an empty message and an error that says so are the result.
 */
export function createCallModel(dependencies: Dependencies): (input: CallModelInput) => Promise<CallModelResult> {
  return async (input) => {
    rejectResetRun(input);
    const call = new ModelCallAttempt(dependencies, input);
    try {
      return await withHeartbeat(() => call.run(), { details: () => call.details, giveUp: () => call.giveUp() });
    } finally {
      const { turnId, messageId } = input;
      dependencies.bus.finish({ turnId, messageId, attempt: Context.current().info.attempt });
    }
  };
}

class ModelCallAttempt {
  readonly details: AttemptDetails;
  readonly #dependencies: Dependencies;
  readonly #input: CallModelInput;
  readonly #context = Context.current();
  readonly #signal: AbortSignal;
  /** When the provider last said something, or was asked. */
  #heardAt = Date.now();
  #answer: MessageAssembler | undefined;
  /** Whether the model may have begun to work for this attempt. */
  #wasAsked = false;
  #isAnswering = false;

  constructor(dependencies: Dependencies, input: CallModelInput) {
    this.#dependencies = dependencies;
    this.#input = input;
    this.#signal = AbortSignal.any([this.#context.cancellationSignal, dependencies.draining]);
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by the attempt before this one
    this.details = (detailsLeft() as AttemptDetails | undefined) ?? {
      failures: 0,
      failingMs: 0,
      usage: NO_USAGE,
      accounted: 0,
    };
    // Those that went with their workers could not say anything.
    const { attempt } = this.#context.info;
    for (; this.details.accounted < attempt - 1; this.details.accounted++) {
      this.#add(UNREPORTED);
      dependencies.metrics.retries.inc({ activity: 'callModel', reason: 'lost' });
    }
  }

  async run(): Promise<CallModelResult> {
    try {
      const prepared = await this.#prepare();
      this.#heardAt = Date.now();
      for await (const chunk of await this.#ask(prepared)) {
        this.#heardAt = Date.now();
        this.#isAnswering = true;
        this.#answer?.add(chunk);
      }
      if (this.#signal.aborted) return await this.#stopped();
      // Providers do that now and then, and not when they are asked again. A model that insists has nothing to say.
      if (this.#answer?.isEmpty && this.details.failures === 0) {
        throw new ModelError('empty_answer', 'the model gave an empty answer');
      }
      return await this.#result({ status: 'answered' });
    } catch (error) {
      return this.#signal.aborted ? await this.#stopped() : await this.#failed(error);
    }
  }

  /** Ends the message when too many attempts at it were lost. */
  giveUp(): Promise<CallModelResult> {
    return this.#result({ status: 'error', message: `The model call was given up: ${GIVEN_UP}` });
  }

  async #prepare(): Promise<PreparedModelCall> {
    const { runId } = this.#context.info.workflowExecution ?? { runId: '' };
    const records = this.#dependencies.conversations.load(this.#input, runId, this.#signal);
    const prepared = await prepareModelCall(this.#dependencies, this.#input, records, this.#signal);
    const { toolset, conversation, request } = prepared;
    this.#answer = new MessageAssembler({
      input: this.#input,
      attempt: this.#context.info.attempt,
      toolset,
      offered: request.tools,
      inputCharacters: inputCharacters(request),
      knownCalls: conversation.flatMap((item) => (item.role === 'tool' ? [item.toolCallId] : [])),
      bus: this.#dependencies.bus,
    });
    return prepared;
  }

  /**
   * The first call of a turn may be under way already. A later attempt does not look for it: the worker that began it
   * may be the one that was lost. What was begun and is not used has been paid for all the same.
   */
  async #ask({ provider, request }: PreparedModelCall): Promise<AsyncIterable<ModelChunk>> {
    const { speculativeCalls } = this.#dependencies;
    const onUnreported = (): void => this.#add(UNREPORTED);
    this.#wasAsked = true;
    let begun: AsyncIterable<ModelChunk> | undefined;
    if (this.#input.step === 1) {
      if (this.#context.info.attempt === 1)
        begun = await speculativeCalls.claim(this.#input, this.#signal, onUnreported);
      else speculativeCalls.forgo(this.#input.turnId, onUnreported);
    }
    return begun ?? provider.stream(request, this.#signal);
  }

  async #result(outcome: Outcome): Promise<CallModelResult> {
    const { conversations, blobs } = this.#dependencies;
    const { sessionId } = this.#input;
    const end = outcome.status;
    this.#recordUsage();
    const records = (await this.#answer?.records(end, this.details.usage)) ?? [this.#emptyMessage(end)];
    const stamp = randomUUID();
    // The answer is there and paid for: a store that is away is waited for.
    const keep = () => offloadResult(records, { blobs, sessionId });
    // Of a cancelled call nobody asks again for what was said by then.
    const giveUp = end === 'cancelled' ? NEVER : this.#signal;
    const stored = await retryWhileUnavailable(keep, giveUp, isRetryableStoreError);
    conversations.remember(stamp, records);
    return { records: stored, stamp, outcome };
  }

  async #stopped(): Promise<CallModelResult> {
    if (this.#context.cancellationSignal.aborted && stopReason(this.#context) === 'cancelled') {
      return this.#result({ status: 'cancelled' });
    }
    this.#recordUsage();
    if (this.#dependencies.draining.aborted) {
      throw ApplicationFailure.retryable('the worker is shutting down', 'WorkerShutdown');
    }
    throw new CancelledFailure('nobody waits for this model call any more');
  }

  async #failed(error: unknown): Promise<CallModelResult> {
    if (isUnavailable(error)) {
      this.#recordUsage();
      throw error;
    }
    const failure = failureOf(error);
    if (failure === error && failure.isRefusal && !this.#isAnswering) this.#wasAsked = false;
    if (failure !== error) {
      const { turnId, messageId } = this.#input;
      this.#dependencies.log.error({ err: error, turnId, messageId }, 'a model call failed unexpectedly');
    }
    const wait = this.#mayRetryIn(failure);
    if (wait === undefined) {
      if (error instanceof PayloadTooLarge) this.#answer = undefined;
      return this.#result({ status: 'error', message: failure.message });
    }
    this.#recordUsage();
    throw ApplicationFailure.create({ type: failure.failure, message: failure.message, nextRetryDelay: wait });
  }

  /**
   * Milliseconds to wait, or undefined if another try is of no use or the provider has failed for long enough. Time in
   * which it did answer does not count, nor that in which no worker was there to ask it.
   */
  #mayRetryIn({ isRetryable, retryAfterMs = 0 }: ModelError): number | undefined {
    if (!isRetryable) return undefined;
    const { details } = this;
    const wait = Math.max(retryAfterMs, backoffMs(details.failures, { first: FIRST_WAIT_MS, max: MAX_WAIT_MS }));
    // The first failure is tried again however long it took: a stalled model may be silent for longer than this.
    if (details.failingMs + wait > this.#dependencies.config.model.retrySeconds * 1000) return undefined;
    details.failures += 1;
    details.failingMs += Date.now() - this.#heardAt + wait;
    return wait;
  }

  /** Adds what this attempt has cost, once, for the next one to know: what was said may be void, but not that. */
  #recordUsage(): void {
    if (this.details.accounted === this.#context.info.attempt) return;
    this.details.accounted = this.#context.info.attempt;
    if (this.#wasAsked) this.#add(this.#answer?.usage ?? UNREPORTED);
  }

  #add(usage: Usage): void {
    this.details.usage = addUsage(this.details.usage, usage);
  }

  /** For a call that has no answer. */
  #emptyMessage(end: Outcome['status']): ModelMessage {
    const { messageId: id, createdAt: at, threadId } = this.#input;
    const finishReason = end === 'cancelled' ? 'cancelled' : 'error';
    return {
      kind: 'model.message',
      id,
      at,
      threadId,
      content: '',
      refusal: '',
      reasoning: '',
      toolCalls: [],
      finishReason,
      ...reported(this.details.usage),
    };
  }
}

/** Of anything that went wrong; what we did not foresee is tried again too, for a while. */
function failureOf(error: unknown): ModelError {
  if (error instanceof ModelError) return error;
  if (error instanceof PayloadTooLarge)
    return new ModelError('bad_request', `The model's answer can't be kept: ${error.message}`);
  const message = errorMessage(error);
  return new ModelError('overloaded', `internal error: ${message}`, { cause: error });
}
