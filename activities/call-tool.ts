import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { ApplicationFailure, Context } from '@temporalio/activity';
import { isRetryableStoreError, offloadResult, PayloadTooLarge } from '../src/blobs/offload.ts';
import type { Appended, CallToolInput } from '../src/core/history.ts';
import { SEARCH_TOOLS, searchResult } from '../src/tools/search-tools.ts';
import { outcomeText } from '../src/core/projection.ts';
import type { FoundTool, NewRecord, ToolCall, ToolOutcome } from '../src/core/records.ts';
import { parseArguments } from '../src/tools/arguments.ts';
import type { CallOutcome } from '../src/mcp/call-outcome.ts';
import type { McpEndpoint } from '../src/mcp/registry.ts';
import { observeTool } from '../src/mcp/instrument-call.ts';
import type { FileContent } from '../src/blobs/store-files.ts';
import { readResult, storeToolResult } from '../src/tools/results.ts';
import type { Dependencies } from './dependencies.ts';
import { completeReliably } from '../src/engine/complete-reliably.ts';
import { detailsLeft, GIVEN_UP, stopReason, withHeartbeat } from '../src/temporal/activity-heartbeat.ts';
import { rejectResetRun } from '../src/temporal/reject-reset-run.ts';
import { retryWhileUnavailable } from '../src/engine/retry.ts';
import { NEVER, onAbort } from '../src/lib/abort.ts';
import { errorMessage } from '../src/lib/errors.ts';

/** A cancelled tool with effects may still finish within this time: to know what it did is worth the wait. */
const CANCEL_GRACE_MS = 5_000;

/** Waits between tries of a call that did not reach its server; the pool remembers a failed connect for a second or more. */
const UNREACHED_WAITS_MS = [1_500, 4_000];

/** How often a tool that may run again is asked while it does not answer. */
const MAX_FAILURES = 5;

interface Ended {
  outcome: ToolOutcome;
  text: string;
  files?: FileContent[];
  foundTools?: FoundTool[];
}

const CANCELLED: Ended = { outcome: 'cancelled', text: 'The tool call was cancelled while it ran.' };

/**
 * Runs one tool call. Whatever becomes of it is the result; this throws only where another attempt may do the call
 * again: when the tool allows that, and this worker stops or the server did not answer.
 */
export function createCallTool(dependencies: Dependencies): (input: CallToolInput) => Promise<Appended> {
  return async (input) => {
    rejectResetRun(input);
    const run = new ToolCallAttempt(dependencies, input);
    return withHeartbeat(() => run.run(), { details: () => run.details, giveUp: () => run.giveUp() });
  };
}

class ToolCallAttempt {
  /** What an attempt tells the next one: how often and how long the tool has not answered, lost workers apart. */
  readonly details: { failures: number; failingMs: number };
  readonly #dependencies: Dependencies;
  readonly #input: CallToolInput;
  readonly #context = Context.current();
  readonly #startedAt = Date.now();

  constructor(dependencies: Dependencies, input: CallToolInput) {
    this.#dependencies = dependencies;
    this.#input = input;
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by the attempt before this one
    this.details = (detailsLeft() as ToolCallAttempt['details'] | undefined) ?? { failures: 0, failingMs: 0 };
  }

  async run(): Promise<Appended> {
    const { signal, release } = this.#stopSignal();
    try {
      const appended = await this.#appended(await this.#execute(signal));
      if (!this.#isRetryable) completeReliably(this.#dependencies, appended);
      return appended;
    } finally {
      release();
    }
  }

  /** Ends the call when too many attempts at it were lost; each of them may have reached the tool. */
  giveUp(): Promise<Appended> {
    return this.#appended({ outcome: 'unknown_outcome', text: `${outcomeText('unknown_outcome')} (${GIVEN_UP})` });
  }

  get #isRetryable(): boolean {
    return this.#input.source.run?.effect === 'retry';
  }

  /** An attempt before this one may have reached the tool: nobody can say of the call that it was not executed. */
  get #isRepeated(): boolean {
    return this.#context.info.attempt > 1;
  }

  async #execute(signal: AbortSignal): Promise<Ended> {
    const { toolsets, catalog, conversations } = this.#dependencies;
    let call: ToolCall;
    let endpoint: McpEndpoint | undefined;
    try {
      const spec = await retryWhileUnavailable(() => catalog.agents.spec(this.#input.specHash), signal);
      call = await retryWhileUnavailable(() => conversations.toolCall(this.#input), signal);
      const { info } = call;
      if (info.type === 'system' && info.name === SEARCH_TOOLS) {
        return {
          outcome: 'succeeded',
          ...searchResult(await toolsets.load(spec, this.#input, signal), call.arguments),
        };
      }
      endpoint = info.type === 'mcp' ? await toolsets.endpoint(spec, this.#input, info, signal) : undefined;
    } catch (error) {
      if (signal.aborted) return this.#stoppedBefore();
      return this.#notExecuted(errorMessage(error));
    }
    if (!endpoint) return this.#notExecuted('its server is not known here.');
    return this.#callServer(endpoint, call, signal);
  }

  async #callServer(endpoint: McpEndpoint, call: ToolCall, signal: AbortSignal): Promise<Ended> {
    const { toolPool, config, metrics } = this.#dependencies;
    const { source, toolCallId } = this.#input;
    const parsed = parseArguments({}, call.arguments);
    if (!parsed.ok) return { outcome: 'failed', text: parsed.message };
    for (let tries = 0; ; tries++) {
      const options = {
        // By the turn that asked for it, whichever turn runs it after an approval.
        operationId: `${source.turnId}/${toolCallId}`,
        signal,
        timeoutMs: config.tool.timeoutSeconds * 1000,
      };
      const outcome = await observeTool({ metrics, endpoint, tool: call.info.name }, () =>
        toolPool.call(endpoint, this.#input, call.info.name, parsed.value, options),
      );
      const wait = UNREACHED_WAITS_MS[tries];
      if (outcome.status !== 'not_sent' || wait === undefined || signal.aborted) return this.#ended(outcome, signal);
      await sleep(wait, undefined, { signal }).catch(() => undefined);
    }
  }

  #ended(outcome: CallOutcome, signal: AbortSignal): Ended {
    switch (outcome.status) {
      case 'result': {
        const { text, files } = readResult(outcome);
        return { outcome: outcome.isError ? 'failed' : 'succeeded', text, files };
      }
      case 'rejected':
        return { outcome: 'failed', text: `The tool call failed: ${outcome.message}` };
      case 'not_sent':
        if (this.#isRepeated) return this.#unknown(outcome.message, signal);
        if (signal.aborted) return this.#stoppedBefore();
        return this.#notExecuted(`its server can't be reached: ${outcome.message}`);
      case 'unknown':
        return this.#unknown(outcome.message, signal, outcome.isFinal);
    }
  }

  /** Stopped before anything was sent. */
  #stoppedBefore(): Ended {
    if (this.#isRetryable) this.#saveHeartbeatDetails();
    return this.#isRepeated ? CANCELLED : { outcome: 'cancelled', text: outcomeText('cancelled') };
  }

  #notExecuted(reason: string): Ended {
    if (this.#isRepeated) return { outcome: 'unknown_outcome', text: `${outcomeText('unknown_outcome')} (${reason})` };
    return { outcome: 'failed', text: `The tool call was not executed: ${reason}` };
  }

  #unknown(message: string, signal: AbortSignal, isFinal = false): Ended {
    if (this.#isRetryable && !isFinal) {
      if (signal.aborted) this.#saveHeartbeatDetails();
      if (signal.aborted) return CANCELLED;
      this.details.failures += 1;
      this.details.failingMs += Date.now() - this.#startedAt;
      // All attempts together get the time of one call.
      const isOutOfTime = this.details.failingMs >= this.#dependencies.config.tool.timeoutSeconds * 1000;
      if (this.details.failures < MAX_FAILURES && !isOutOfTime) {
        throw ApplicationFailure.retryable(message, 'NoAnswer');
      }
    }
    return { outcome: 'unknown_outcome', text: `${outcomeText('unknown_outcome')} (${message})` };
  }

  /** A call that may run again is left to another worker when this one stops. */
  #saveHeartbeatDetails(): void {
    if (this.#context.cancellationSignal.aborted && stopReason(this.#context) === 'cancelled') return;
    throw ApplicationFailure.retryable('the worker is shutting down', 'WorkerShutdown');
  }

  /**
   * When to cut the call off. One that may run again: at once. One with effects: not when this worker is merely asked to
   * stop, and not at once when the turn is cancelled.
   */
  #stopSignal(): { signal: AbortSignal; release: () => void } {
    const { cancellationSignal } = this.#context;
    if (this.#isRetryable) {
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

  /** The effect may have happened by now, so its result is kept, however long and for whatever reason that fails. */
  async #appended(ended: Ended): Promise<Appended> {
    const keep = (some: Ended) => retryWhileUnavailable(() => this.#keep(some), NEVER, isRetryableStoreError);
    let kept: Awaited<ReturnType<typeof keep>>;
    try {
      kept = await keep(ended);
    } catch (error) {
      if (!(error instanceof PayloadTooLarge)) throw error;
      kept = await keep(textAlone(ended));
    }
    const stamp = randomUUID();
    this.#dependencies.conversations.remember(stamp, [kept.record]);
    return { records: kept.stored, stamp };
  }

  /** @throws PayloadTooLarge */
  async #keep({ outcome, text, files = [], foundTools }: Ended): Promise<{ record: NewRecord; stored: NewRecord[] }> {
    const { blobs } = this.#dependencies;
    const { sessionId, threadId, toolCallId } = this.#input;
    const result = {
      ...(await storeToolResult({ text, files }, { blobs, sessionId })),
      ...(foundTools && { foundTools }),
    };
    const at = new Date().toISOString();
    const record: NewRecord = { kind: 'tool.response', at, threadId, toolCallId, outcome, ...result };
    return { record, stored: await offloadResult([record], { blobs, sessionId }) };
  }
}

/** A result without its files, for one that is too large with them. */
function textAlone({ outcome, text, files = [] }: Ended): Ended {
  const note = `[the ${files.length} files of this result were left out: they are too large to be kept together]`;
  return { outcome, text: `${text}\n${note}` };
}
