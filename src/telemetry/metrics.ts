import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import packageJson from '../../package.json' with { type: 'json' };
import type { LogRecord } from '../core/records/log.ts';
import type { ToolOutcome } from '../core/records/results.ts';
import { endStatus, type OutcomeStatus } from '../core/records/turn.ts';
import { StepClock } from './step-clock.ts';

/** How a speculative model call ended. Only a claimed one was of use; the others may have cost tokens. */
const SPECULATIVE_CALL_OUTCOMES = ['claimed', 'withdrawn', 'mismatched', 'expired', 'failed'] as const;

export type SpeculativeCallOutcome = (typeof SPECULATIVE_CALL_OUTCOMES)[number];

/** Seconds: from a cached response to a model that reasons for minutes. */
const CALL_BUCKETS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600];
const QUICK_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** How work ended that began before its step was scheduled. Only claimed work was of use. */
const SPECULATIVE_STEP_OUTCOMES = ['claimed', 'withdrawn', 'mismatched', 'expired'] as const;

export type SpeculativeStepOutcome = (typeof SPECULATIVE_STEP_OUTCOMES)[number];

/**
 * The metrics of a process. All label values are bounded: route patterns and names of registered servers, but never
 * ids, paths, or names of models or agents.
 */
export class Metrics {
  readonly registry = new Registry();

  readonly turnsStarted = this.#counter('everturn_turns_started_total', 'Turns started by this API');
  readonly turnsEnded = this.#counter(
    'everturn_turns_ended_total',
    'Turns archived by this worker, by outcome',
    'status',
  );
  readonly toolCallsEnded = this.#counter(
    'everturn_tool_calls_ended_total',
    'Tool calls archived by this worker, by outcome',
    'outcome',
  );
  readonly modelTokens = this.#counter(
    'everturn_model_tokens_total',
    'Tokens of the turns archived by this worker, as reported by the providers',
    'type',
  );
  readonly unreportedAttempts = this.#counter(
    'everturn_model_attempts_unreported_total',
    'Model attempts that ended before the provider reported their usage; everturn_model_tokens_total lacks their tokens',
  );
  readonly firstDelta = this.#histogram(
    'everturn_first_delta_seconds',
    'Time from the request that creates a turn to the first delta sent to its reader',
    CALL_BUCKETS,
  );
  readonly stepOverhead = this.#histogram(
    'everturn_step_overhead_seconds',
    "Time from the end of a turn's model or tool calls to the next, if this process made both without waiting to retry",
    QUICK_BUCKETS,
  );
  readonly steps = new StepClock(this.stepOverhead);
  readonly modelCalls = this.#histogram(
    'everturn_model_call_duration_seconds',
    'Time of model requests, to the last byte of the response, by outcome: answered, cancelled, or the class of failure',
    CALL_BUCKETS,
    'outcome',
  );
  readonly modelFallbacks = this.#counter(
    'everturn_model_fallbacks_total',
    'Models given up for the next one of their agent, by the provider that failed',
    'provider',
  );
  readonly modelInputsTruncated = this.#counter(
    'everturn_model_inputs_truncated_total',
    'Model messages for conversations of which the server of the model has dropped the beginning, by provider',
    'provider',
  );
  readonly modelCallsRefused = this.#counter(
    'everturn_model_calls_refused_total',
    'Model calls not made, because the budget of their session or subject was reached',
    'scope',
  );
  readonly modelCallsWaiting = this.#gauge(
    'everturn_model_calls_waiting',
    'Model calls of this process that wait for the limits of their provider',
    'provider',
  );
  readonly modelCost = this.#counter(
    'everturn_model_cost_usd_total',
    'Cost of the turns archived by this worker, without turns that used a model of unknown price',
  );
  readonly speculativeCalls = this.#counter(
    'everturn_speculative_calls_total',
    'Model calls started before their turns were accepted, by outcome: claimed, or why they were unused',
    'outcome',
  );
  readonly speculativeSteps = this.#counter(
    'everturn_speculative_steps_total',
    'Model calls after the first and tool calls that began before they were scheduled, by outcome: claimed, or why they were unused',
    'work',
    'outcome',
  );
  readonly toolCalls = this.#histogram(
    'everturn_tool_call_duration_seconds',
    'Time of MCP tool calls, by registered server and outcome: result, error, rejected, not_sent, unknown',
    CALL_BUCKETS,
    'server',
    'outcome',
  );
  readonly retries = this.#counter(
    'everturn_retries_total',
    'Activity attempts that failed and are retried, by class of failure',
    'activity',
    'reason',
  );
  readonly webhookAttempts = this.#counter(
    'everturn_webhook_attempts_total',
    'Attempts of this worker to deliver to a webhook, by outcome: delivered, retried, or failed for good',
    'outcome',
  );
  readonly webhookBacklogAge = this.#gauge(
    'everturn_webhook_backlog_oldest_seconds',
    'Time since the oldest delivery that is still to be sent was created, across all processes',
  );
  readonly readers = this.#gauge('everturn_readers', 'Open event streams of this API');
  readonly readersDisconnected = this.#counter(
    'everturn_readers_disconnected_total',
    'Readers disconnected because they accepted nothing for a minute',
  );
  readonly httpRequests = this.#counter(
    'everturn_http_requests_total',
    'HTTP requests answered, by route pattern',
    'method',
    'route',
    'status',
  );
  readonly httpDuration = this.#histogram(
    'everturn_http_request_duration_seconds',
    'Time of HTTP requests to the end of the response, without event streams',
    QUICK_BUCKETS,
    'method',
    'route',
  );
  readonly up = this.#gauge('everturn_up', 'Whether a dependency of this process works: 1 or 0', 'dependency');
  readonly turnsRunning = this.#gauge('everturn_turns_running', 'Turns that have not ended, across all processes');
  readonly archiveBacklog = this.#gauge(
    'everturn_archive_backlog_turns',
    'Ended turns that are not archived yet, across all processes',
  );
  readonly archiveBacklogAge = this.#gauge(
    'everturn_archive_backlog_oldest_seconds',
    'Time since the oldest turn of the archive backlog ended, across all processes',
  );
  readonly storedBytes = this.#gauge(
    'everturn_stored_bytes',
    'What sessions store, across all processes: those of all subjects, and of the subject that stores the most',
    'of',
  );
  readonly stuckWorkflows = this.#gauge(
    'everturn_stuck_workflows',
    'Turns, sessions and removals of sessions whose tasks keep failing or no worker takes, across all processes',
    'type',
  );

  constructor() {
    collectDefaultMetrics({ register: this.registry });
    const info = this.#gauge('everturn_info', 'The version of this process', 'version');
    info.set({ version: packageJson.version }, 1);
    // Counters start at 0 instead of being absent, so that an alert on an increase sees the first event.
    for (const status of STATUSES) this.turnsEnded.inc({ status }, 0);
    for (const outcome of SPECULATIVE_CALL_OUTCOMES) this.speculativeCalls.inc({ outcome }, 0);
    for (const outcome of ['delivered', 'retried', 'failed']) this.webhookAttempts.inc({ outcome }, 0);
    for (const outcome of SPECULATIVE_STEP_OUTCOMES) {
      for (const work of ['model_call', 'tool_call']) this.speculativeSteps.inc({ work, outcome }, 0);
    }
    for (const outcome of OUTCOMES) this.toolCallsEnded.inc({ outcome }, 0);
    for (const scope of ['session', 'subject']) this.modelCallsRefused.inc({ scope }, 0);
  }

  /** Counts records as they are archived, including those of turns whose worker died. */
  archived(records: readonly LogRecord[]): void {
    for (const record of records) {
      if (record.kind === 'tool.response') this.toolCallsEnded.inc({ outcome: record.outcome });
      if (record.kind !== 'turn.done') continue;
      const { end, usage } = record;
      this.turnsEnded.inc({ status: endStatus(end) });
      this.modelTokens.inc({ type: 'input' }, usage.inputTokens);
      this.modelTokens.inc({ type: 'output' }, usage.outputTokens);
      this.modelTokens.inc({ type: 'cache_read' }, usage.cacheReadTokens);
      this.modelTokens.inc({ type: 'cache_write' }, usage.cacheWriteTokens);
      this.modelTokens.inc({ type: 'reasoning' }, usage.reasoningTokens);
      this.unreportedAttempts.inc(usage.unreportedAttempts ?? 0);
      this.modelCost.inc(usage.costInUsd ?? 0);
    }
  }

  #counter<Label extends string>(name: string, help: string, ...labelNames: Label[]): Counter<Label> {
    return new Counter({ name, help, labelNames, registers: [this.registry] });
  }

  #gauge<Label extends string>(name: string, help: string, ...labelNames: Label[]): Gauge<Label> {
    return new Gauge({ name, help, labelNames, registers: [this.registry] });
  }

  #histogram<Label extends string>(
    name: string,
    help: string,
    buckets: number[],
    ...labelNames: Label[]
  ): Histogram<Label> {
    return new Histogram({ name, help, labelNames, buckets, registers: [this.registry] });
  }
}

const STATUSES: readonly OutcomeStatus[] = ['done', 'action_required', 'cancelled', 'error'];
const OUTCOMES: readonly ToolOutcome[] = ['succeeded', 'failed', 'denied', 'expired', 'cancelled', 'unknown_outcome'];
