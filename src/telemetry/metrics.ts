import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import packageJson from '../../package.json' with { type: 'json' };
import { endStatus, type OutcomeStatus, type LogRecord, type ToolOutcome } from '../core/records.ts';
import { StepClock } from './step-clock.ts';

/** How a speculative model call ended. All but the first were of no use, and may have cost tokens. */
const SPECULATIVE_CALL_OUTCOMES = ['claimed', 'withdrawn', 'mismatched', 'expired', 'failed'] as const;

export type SpeculativeCallOutcome = (typeof SPECULATIVE_CALL_OUTCOMES)[number];

/** Seconds: from a cached answer to a model that reasons for minutes. */
const CALL_BUCKETS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600];
const QUICK_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** How work ended that began before its step was scheduled. All but the first were of no use. */
const SPECULATIVE_STEP_OUTCOMES = ['claimed', 'withdrawn', 'mismatched', 'expired'] as const;

export type SpeculativeStepOutcome = (typeof SPECULATIVE_STEP_OUTCOMES)[number];

/**
 * The metrics of a process. All label values are bounded: route patterns and names of registered servers, but never
 * ids, paths, or names of models or agents.
 */
export class Metrics {
  readonly registry = new Registry();

  readonly turnsStarted = new Counter({
    name: 'everturn_turns_started_total',
    help: 'Turns started by this API',
    registers: [this.registry],
  });
  readonly turnsEnded = new Counter({
    name: 'everturn_turns_ended_total',
    help: 'Turns archived by this worker, by outcome',
    labelNames: ['status'] as const,
    registers: [this.registry],
  });
  readonly toolCallsEnded = new Counter({
    name: 'everturn_tool_calls_ended_total',
    help: 'Tool calls archived by this worker, by outcome',
    labelNames: ['outcome'] as const,
    registers: [this.registry],
  });
  readonly modelTokens = new Counter({
    name: 'everturn_model_tokens_total',
    help: 'Tokens of the turns archived by this worker, as reported by the providers',
    labelNames: ['type'] as const,
    registers: [this.registry],
  });
  readonly unreportedAttempts = new Counter({
    name: 'everturn_model_attempts_unreported_total',
    help: 'Model attempts that ended before the provider reported their usage; everturn_model_tokens_total lacks their tokens',
    registers: [this.registry],
  });
  readonly firstDelta = new Histogram({
    name: 'everturn_first_delta_seconds',
    help: 'Time from the request that creates a turn to the first delta sent to its reader',
    buckets: CALL_BUCKETS,
    registers: [this.registry],
  });
  readonly stepOverhead = new Histogram({
    name: 'everturn_step_overhead_seconds',
    help: "Time from the end of a turn's model or tool calls to the next, if this process made both and no failure was waited out",
    buckets: QUICK_BUCKETS,
    registers: [this.registry],
  });
  readonly steps = new StepClock(this.stepOverhead);
  readonly modelCalls = new Histogram({
    name: 'everturn_model_call_duration_seconds',
    help: 'Time of model requests, to the last byte of the response, by outcome: answered, cancelled, or the class of failure',
    labelNames: ['outcome'] as const,
    buckets: CALL_BUCKETS,
    registers: [this.registry],
  });
  readonly modelFallbacks = new Counter({
    name: 'everturn_model_fallbacks_total',
    help: 'Models given up for the next one of their agent, by the provider that failed',
    labelNames: ['provider'] as const,
    registers: [this.registry],
  });
  readonly modelInputsTruncated = new Counter({
    name: 'everturn_model_inputs_truncated_total',
    help: 'Answers to conversations of which the server of the model has dropped the beginning, by provider',
    labelNames: ['provider'] as const,
    registers: [this.registry],
  });
  readonly modelCallsRefused = new Counter({
    name: 'everturn_model_calls_refused_total',
    help: 'Model calls not made, because the budget of their session or subject was reached',
    labelNames: ['scope'] as const,
    registers: [this.registry],
  });
  readonly modelCallsWaiting = new Gauge({
    name: 'everturn_model_calls_waiting',
    help: 'Model calls of this process that wait for the limits of their provider',
    labelNames: ['provider'] as const,
    registers: [this.registry],
  });
  readonly modelCost = new Counter({
    name: 'everturn_model_cost_usd_total',
    help: 'Cost of the turns archived by this worker, without turns that used a model of unknown price',
    registers: [this.registry],
  });
  readonly speculativeCalls = new Counter({
    name: 'everturn_speculative_calls_total',
    help: 'Model calls started before their turns were accepted, by outcome: claimed, or why they were unused',
    labelNames: ['outcome'] as const,
    registers: [this.registry],
  });
  readonly speculativeSteps = new Counter({
    name: 'everturn_speculative_steps_total',
    help: 'Model calls after the first and tool calls that began before they were scheduled, by outcome: claimed, or why they were unused',
    labelNames: ['work', 'outcome'] as const,
    registers: [this.registry],
  });
  readonly toolCalls = new Histogram({
    name: 'everturn_tool_call_duration_seconds',
    help: 'Time of MCP tool calls, by registered server and outcome: result, error, rejected, not_sent, unknown',
    labelNames: ['server', 'outcome'] as const,
    buckets: CALL_BUCKETS,
    registers: [this.registry],
  });
  readonly retries = new Counter({
    name: 'everturn_retries_total',
    help: 'Activity attempts that failed and are retried, by class of failure',
    labelNames: ['activity', 'reason'] as const,
    registers: [this.registry],
  });
  readonly webhookAttempts = new Counter({
    name: 'everturn_webhook_attempts_total',
    help: 'Attempts of this worker to deliver to a webhook, by outcome: delivered, retried, or failed for good',
    labelNames: ['outcome'] as const,
    registers: [this.registry],
  });
  readonly webhookBacklogAge = new Gauge({
    name: 'everturn_webhook_backlog_oldest_seconds',
    help: 'Time since the oldest delivery that is not over was created, across all processes',
    registers: [this.registry],
  });
  readonly readers = new Gauge({
    name: 'everturn_readers',
    help: 'Open event streams of this API',
    registers: [this.registry],
  });
  readonly readersDisconnected = new Counter({
    name: 'everturn_readers_disconnected_total',
    help: 'Readers disconnected because they accepted nothing for a minute',
    registers: [this.registry],
  });
  readonly httpRequests = new Counter({
    name: 'everturn_http_requests_total',
    help: 'HTTP requests answered, by route pattern',
    labelNames: ['method', 'route', 'status'] as const,
    registers: [this.registry],
  });
  readonly httpDuration = new Histogram({
    name: 'everturn_http_request_duration_seconds',
    help: 'Time of HTTP requests to the end of the response, without event streams',
    labelNames: ['method', 'route'] as const,
    buckets: QUICK_BUCKETS,
    registers: [this.registry],
  });
  readonly up = new Gauge({
    name: 'everturn_up',
    help: 'Whether a dependency of this process works: 1 or 0',
    labelNames: ['dependency'] as const,
    registers: [this.registry],
  });
  readonly turnsRunning = new Gauge({
    name: 'everturn_turns_running',
    help: 'Turns that have not ended, across all processes',
    registers: [this.registry],
  });
  readonly archiveBacklog = new Gauge({
    name: 'everturn_archive_backlog_turns',
    help: 'Ended turns that are not archived yet, across all processes',
    registers: [this.registry],
  });
  readonly archiveBacklogAge = new Gauge({
    name: 'everturn_archive_backlog_oldest_seconds',
    help: 'Time since the oldest turn of the archive backlog ended, across all processes',
    registers: [this.registry],
  });
  readonly storedBytes = new Gauge({
    name: 'everturn_stored_bytes',
    help: 'What sessions store, across all processes: those of all subjects, and of the subject that stores the most',
    labelNames: ['of'] as const,
    registers: [this.registry],
  });
  readonly stuckWorkflows = new Gauge({
    name: 'everturn_stuck_workflows',
    help: 'Turns, sessions and removals of sessions whose tasks keep failing or no worker takes, across all processes',
    labelNames: ['type'] as const,
    registers: [this.registry],
  });

  constructor() {
    collectDefaultMetrics({ register: this.registry });
    const info = new Gauge({
      name: 'everturn_info',
      help: 'The version of this process',
      labelNames: ['version'] as const,
      registers: [this.registry],
    });
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
}

const STATUSES: readonly OutcomeStatus[] = ['done', 'action_required', 'cancelled', 'error'];
const OUTCOMES: readonly ToolOutcome[] = ['succeeded', 'failed', 'denied', 'expired', 'cancelled', 'unknown_outcome'];
