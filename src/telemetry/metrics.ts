import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import packageJson from '../../package.json' with { type: 'json' };
import { endStatus, type OutcomeStatus, type LogRecord, type ToolOutcome } from '../core/records.ts';
import { StepClock } from './step-clock.ts';

/** How a speculative model call ended. All but the first were of no use, and may have cost tokens. */
const SPECULATIVE_CALL_OUTCOMES = ['claimed', 'withdrawn', 'mismatched', 'expired', 'failed'] as const;

export type SpeculativeCallOutcome = (typeof SPECULATIVE_CALL_OUTCOMES)[number];

/** From an answer of the cache to a model that thinks for minutes. */
const CALL_BUCKETS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600];
const QUICK_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/**
 * What a process counts. Every set of labels is bounded: routes by their patterns, servers by the operator's names,
 * never an id, a path, a model's or an agent's name.
 */
export class Metrics {
  readonly registry = new Registry();

  readonly turnsStarted = new Counter({
    name: 'everturn_turns_started_total',
    help: 'Turns that this API has started',
    registers: [this.registry],
  });
  readonly turnsEnded = new Counter({
    name: 'everturn_turns_ended_total',
    help: 'Turns that this worker has put into the archive, by how they ended',
    labelNames: ['status'] as const,
    registers: [this.registry],
  });
  readonly toolCallsEnded = new Counter({
    name: 'everturn_tool_calls_ended_total',
    help: 'Tool calls that this worker has put into the archive, by their outcome',
    labelNames: ['outcome'] as const,
    registers: [this.registry],
  });
  readonly modelTokens = new Counter({
    name: 'everturn_model_tokens_total',
    help: 'Tokens of the turns that this worker has put into the archive, as the providers reported them',
    labelNames: ['type'] as const,
    registers: [this.registry],
  });
  readonly unreportedAttempts = new Counter({
    name: 'everturn_model_attempts_unreported_total',
    help: 'Attempts at models that ended before it was said what they cost; the tokens are without theirs',
    registers: [this.registry],
  });
  readonly firstDelta = new Histogram({
    name: 'everturn_first_delta_seconds',
    help: 'From the request that creates a turn to the first delta that is given to its reader',
    buckets: CALL_BUCKETS,
    registers: [this.registry],
  });
  readonly stepOverhead = new Histogram({
    name: 'everturn_step_overhead_seconds',
    help: 'From the end of the model or tool calls of a turn to the beginning of the next, where this process made both',
    buckets: QUICK_BUCKETS,
    registers: [this.registry],
  });
  readonly steps = new StepClock(this.stepOverhead);
  readonly modelCalls = new Histogram({
    name: 'everturn_model_call_duration_seconds',
    help: 'Requests to models, to the last byte of their answers; by outcome: answered, cancelled, or the class of the failure',
    labelNames: ['outcome'] as const,
    buckets: CALL_BUCKETS,
    registers: [this.registry],
  });
  readonly speculativeCalls = new Counter({
    name: 'everturn_speculative_calls_total',
    help: 'Model calls that were begun before their turns were accepted, by outcome: claimed, or what made them be for nothing',
    labelNames: ['outcome'] as const,
    registers: [this.registry],
  });
  readonly toolCalls = new Histogram({
    name: 'everturn_tool_call_duration_seconds',
    help: 'Calls of MCP tools; by registered server and by what came back: result, error, rejected, not_sent, unknown',
    labelNames: ['server', 'outcome'] as const,
    buckets: CALL_BUCKETS,
    registers: [this.registry],
  });
  readonly retries = new Counter({
    name: 'everturn_retries_total',
    help: 'Attempts at activities that failed and are made again, by the class of the failure',
    labelNames: ['activity', 'reason'] as const,
    registers: [this.registry],
  });
  readonly readers = new Gauge({
    name: 'everturn_readers',
    help: 'Event streams that are open here',
    registers: [this.registry],
  });
  readonly readersDisconnected = new Counter({
    name: 'everturn_readers_disconnected_total',
    help: 'Readers that took nothing of what they were sent for a minute and were disconnected',
    registers: [this.registry],
  });
  readonly httpRequests = new Counter({
    name: 'everturn_http_requests_total',
    help: 'HTTP requests that have been answered, by route pattern',
    labelNames: ['method', 'route', 'status'] as const,
    registers: [this.registry],
  });
  readonly httpDuration = new Histogram({
    name: 'everturn_http_request_duration_seconds',
    help: 'HTTP requests to the end of their answers, but for event streams',
    labelNames: ['method', 'route'] as const,
    buckets: QUICK_BUCKETS,
    registers: [this.registry],
  });
  readonly up = new Gauge({
    name: 'everturn_up',
    help: 'Whether what this process stands on works for it: 1 or 0',
    labelNames: ['dependency'] as const,
    registers: [this.registry],
  });
  readonly turnsRunning = new Gauge({
    name: 'everturn_turns_running',
    help: 'Turns that have not ended, of all processes together',
    registers: [this.registry],
  });
  readonly archiveBacklog = new Gauge({
    name: 'everturn_archive_backlog_turns',
    help: 'Ended turns that are not in the archive yet, of all processes together',
    registers: [this.registry],
  });
  readonly archiveBacklogAge = new Gauge({
    name: 'everturn_archive_backlog_oldest_seconds',
    help: 'Time since the oldest turn of the archive backlog has ended',
    registers: [this.registry],
  });
  readonly stuckWorkflows = new Gauge({
    name: 'everturn_stuck_workflows',
    help: 'Turns, sessions and removals of sessions whose workflow tasks fail again and again, of all processes together',
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
    // What has not happened yet is 0, and not unknown: an alert on an increase sees the first one.
    for (const status of STATUSES) this.turnsEnded.inc({ status }, 0);
    for (const outcome of SPECULATIVE_CALL_OUTCOMES) this.speculativeCalls.inc({ outcome }, 0);
    for (const outcome of OUTCOMES) this.toolCallsEnded.inc({ outcome }, 0);
  }

  /** Counts what has gone into the archive, also of turns that died. */
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
    }
  }
}

const STATUSES: readonly OutcomeStatus[] = ['done', 'action_required', 'cancelled', 'error'];
const OUTCOMES: readonly ToolOutcome[] = ['succeeded', 'failed', 'denied', 'expired', 'cancelled', 'unknown_outcome'];
