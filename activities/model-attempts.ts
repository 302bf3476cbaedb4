import { Context } from '@temporalio/activity';
import type { FailedAttempt } from '../src/core/records/message.ts';
import { addUsage, NO_USAGE, UNREPORTED, type Usage } from '../src/core/records/usage.ts';
import type { MessageAssembler } from '../src/agents/message-assembler.ts';
import type { PreparedModelCall } from '../src/agents/prepare-model-call.ts';
import { backoffMs } from '../src/lib/backoff.ts';
import type { ModelError } from '../src/models/model-error.ts';
import type { ModelRequest } from '../src/models/provider.ts';
import { detailsLeft } from '../src/temporal/activity-heartbeat.ts';
import type { Dependencies } from './dependencies.ts';

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
  /** The model was called for the message or for the summary before it, or may have been by a lost worker. */
  isCalled?: true;
}

/** The wait between attempts at a provider that fails, unless the provider requires a wait. */
const FIRST_WAIT_MS = 500;
const MAX_WAIT_MS = 30_000;

/** How long a model is retried if there is another one: short overloads pass, and readers wait no longer than this. */
const FALLBACK_AFTER_MS = 10_000;

/** How many of an agent's tools an error of its model names. */
const MAX_NAMED_TOOLS = 20;

/** Without a delay of its own, the retry would get the delay of the retry policy. */
const FALLBACK_WAIT_MS = 1;

/** The attempts at one message: how they failed, what they have used, and whether and when there is another one. */
export class ModelAttempts {
  readonly details: AttemptDetails;
  readonly #metrics: Dependencies['metrics'];
  readonly #retryMs: number;
  readonly #attempt = Context.current().info.attempt;
  readonly #startedAt = Date.now();

  constructor({ config, metrics }: Pick<Dependencies, 'config' | 'metrics'>) {
    this.#metrics = metrics;
    this.#retryMs = config.model.retrySeconds * 1000;
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
    for (; this.details.accounted < this.#attempt - 1; this.details.accounted++) {
      this.add(UNREPORTED);
      metrics.retries.inc({ activity: 'callModel', reason: 'lost' });
    }
  }

  /** Whether an earlier attempt called the model, or may have: such a retry is made although a budget was reached. */
  readonly isRetry = (): boolean => this.details.isCalled === true;

  /** The request, which may take longer if the model was silent in earlier attempts. */
  patient(request: ModelRequest): ModelRequest {
    const { failed, failures } = this.details;
    const stalls = failed.slice(failed.length - failures).filter(({ failure }) => failure === 'stalled');
    return stalls.length > 0 ? { ...request, stalls: stalls.length } : request;
  }

  add(usage: Usage): void {
    this.details.isCalled = true;
    this.details.usage = addUsage(this.details.usage, usage);
  }

  /** Adds the usage of this attempt, once; undefined: it has none. It counts even if the message is discarded. */
  end(usage: Usage | undefined): void {
    if (this.details.accounted === this.#attempt) return;
    this.details.accounted = this.#attempt;
    if (usage) this.add(usage);
  }

  /**
   * Counts a failure and returns the milliseconds until the next attempt, or undefined if the error is permanent or the
   * provider has failed for too long. The time in which it sent chunks, or in which no worker called it, does not
   * count.
   *
   * @param maxMs for how long, if that is shorter than configured
   */
  planRetry(error: ModelError, message: MessageAssembler | undefined, maxMs: number): number | undefined {
    const { isRetryable, retryAfterMs = 0 } = error;
    if (!isRetryable) return undefined;
    const { details } = this;
    const wait = Math.max(retryAfterMs, backoffMs(details.failures, { first: FIRST_WAIT_MS, max: MAX_WAIT_MS }));
    const elapsed = Date.now() - (message?.lastChunkAt ?? this.#startedAt);
    const isWorthFallback = details.failingMs + elapsed + wait > Math.min(FALLBACK_AFTER_MS, this.#retryMs);
    if (error.isOutage && message?.prepared.hasFallback && isWorthFallback) {
      this.#noteFailure(error, message);
      this.#metrics.modelFallbacks.inc({ provider: message.prepared.target.providerName });
      details.fallback += 1;
      details.failures = 0;
      details.failingMs = 0;
      return FALLBACK_WAIT_MS;
    }
    // The first failure is always retried: a stalled model may be silent for longer than the limit.
    if (details.failingMs + wait > Math.min(maxMs, this.#retryMs)) return undefined;
    this.#noteFailure(error, message);
    details.failures += 1;
    details.failingMs += elapsed + wait;
    return wait;
  }

  /**
   * The failed model, the failure and the provider's message; with the names of the tools if the error is about them,
   * and with the wait that the provider requires if it prevents another attempt. `waitMs`: see `planRetry`.
   */
  reasonOf(
    { failure, status, message, isRetryable, retryAfterMs = 0 }: ModelError,
    { target, toolset }: Pick<PreparedModelCall, 'target' | 'toolset'>,
    waitMs: number | undefined,
  ): string {
    const answered = status === undefined ? '' : ` answered ${status}`;
    const isOfTools = failure === 'bad_request' && /schema|grammar|tool|function/i.test(message);
    const names = [...toolset.tools.keys()];
    const shown = [...names.slice(0, MAX_NAMED_TOOLS), ...(names.length > MAX_NAMED_TOOLS ? ['…'] : [])];
    const tools = isOfTools && names.length > 0 ? ` (the agent's tools: ${shown.join(', ')})` : '';
    const isTooLong = this.details.failingMs + retryAfterMs > this.#retryMs;
    const asked =
      waitMs === undefined && isRetryable && retryAfterMs > 0 && isTooLong
        ? ` (it asks for a wait of ${Math.ceil(retryAfterMs / 1000)} s; EVERTURN_MODEL_RETRY_SECONDS allows ${this.#retryMs / 1000} s for all waits)`
        : '';
    return `${target.providerName}/${target.model}${answered}: ${message}${tools}${asked}`;
  }

  #noteFailure({ failure }: ModelError, message: MessageAssembler | undefined): void {
    if (!message) return;
    const { providerName: provider, model } = message.prepared.target;
    this.details.failed.push({ provider, model, failure });
  }
}
