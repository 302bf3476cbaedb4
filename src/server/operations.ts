import type { Client } from '@temporalio/client';
import type { Logger } from 'pino';
import type { Catalog } from '../catalog/catalog.ts';
import { withTimeout } from '../lib/timeout.ts';
import { describeExecution } from '../temporal/describe-workflow.ts';
import { DELETE_SESSION_WORKFLOW, sessionWorkflowId, TURN_WORKFLOW, turnWorkflowId } from '../core/temporal-names.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { ReadinessCheck, Scrape } from '../api/http/context.ts';
import type { Services } from './services.ts';
import { temporalMetrics } from '../telemetry/temporal-runtime.ts';

interface WorkloadOptions {
  client: Client;
  catalog: Catalog;
  taskQueue: string;
  metrics: Metrics;
  log: Logger;
}

interface Found {
  turnsRunning: number;
  archiveBacklog: number;
  /** Seconds. */
  archiveBacklogAge: number;
  stuckWorkflows: Record<string, number>;
}

/** However often somebody asks, the stores are asked this often. */
const MIN_AGE_MS = 5_000;

/** All together; a scrape must not hang for a store that does. */
const TIMEOUT_MS = 3_000;

/** What is done quickly is not worth a look at how it does. */
const LOOK_AFTER_MS = 30_000;

/** So many are looked at one by one, the oldest first; there are no more unless something is badly wrong. */
const MAX_LOOKED_AT = 200;

/** A workflow task that fails once has met a worker on its way out; one that goes on failing has met a bug. */
const STUCK_ATTEMPTS = 3;

/**
 * What only the stores know, for all processes together: the turns that run, those that have ended and are not in the
 * archive, and the workflows that do not get on. Server 1.29 has no list of the last, so those are looked at that somebody
 * waits for: turns that run, the sessions of turns that are not in the archive, and removals of sessions.
 */
export class Workload {
  readonly #options: WorkloadOptions;
  #askedAt = -Infinity;
  #asking: Promise<void> = Promise.resolve();

  constructor(options: WorkloadOptions) {
    this.#options = options;
  }

  /** Brings the gauges up to date. What can't be found out now has no value. Never rejects. */
  refresh(): Promise<void> {
    if (performance.now() - this.#askedAt < MIN_AGE_MS) return this.#asking;
    this.#askedAt = performance.now();
    this.#asking = this.#refresh();
    return this.#asking;
  }

  async #refresh(): Promise<void> {
    const { client, log, metrics } = this.#options;
    const { turnsRunning, archiveBacklog, archiveBacklogAge, stuckWorkflows } = metrics;
    try {
      // The deadline is for Temporal alone; a catalog that hangs is left to itself.
      const asking = client.connection.withDeadline(Date.now() + TIMEOUT_MS, () => this.#ask());
      const found = await withTimeout(TIMEOUT_MS, asking);
      turnsRunning.set(found.turnsRunning);
      archiveBacklog.set(found.archiveBacklog);
      archiveBacklogAge.set(found.archiveBacklogAge);
      for (const [type, count] of Object.entries(found.stuckWorkflows)) stuckWorkflows.set({ type }, count);
    } catch (error) {
      for (const gauge of [turnsRunning, archiveBacklog, archiveBacklogAge]) gauge.remove();
      // All its labels; of a gauge without labels this would make a 0.
      stuckWorkflows.reset();
      log.warn({ err: error }, 'the workload could not be measured');
    }
  }

  async #ask(): Promise<Found> {
    const { catalog } = this.#options;
    const running = await this.#running(TURN_WORKFLOW);
    const removals = await this.#running(DELETE_SESSION_WORKFLOW);
    const unarchived = await catalog.turns.unarchived();
    const ended = unarchived.filter(({ id }) => !running.has(turnWorkflowId(id)));
    const endedAt = await Promise.all(ended.slice(0, MAX_LOOKED_AT).map(({ id }) => this.#endOf(id)));
    const waiting = endedAt.filter((at) => at !== undefined);
    const before = Date.now() - LOOK_AFTER_MS;
    const oldest = (workflows: Map<string, number>): string[] => {
      const slow = [...workflows].filter(([, startedAt]) => startedAt < before);
      return slow.toSorted(([, a], [, b]) => a - b).map(([id]) => id);
    };
    const old = unarchived.filter(({ created_at: createdAt }) => Date.parse(createdAt) < before);
    const sessions = new Set(old.map(({ session_id: id }) => id));
    return {
      turnsRunning: running.size,
      archiveBacklog: waiting.length + Math.max(0, ended.length - MAX_LOOKED_AT),
      archiveBacklogAge: waiting.length > 0 ? (Date.now() - Math.min(...waiting)) / 1000 : 0,
      stuckWorkflows: {
        turn: await this.#stuck(oldest(running)),
        session: await this.#stuck([...sessions].map(sessionWorkflowId)),
        removal: await this.#stuck(oldest(removals)),
      },
    };
  }

  /** The workflows of a type that run, with the times at which they began. */
  async #running(type: string): Promise<Map<string, number>> {
    const { client, taskQueue } = this.#options;
    const running = new Map<string, number>();
    const query = `WorkflowType = '${type}' AND TaskQueue = '${taskQueue}' AND ExecutionStatus = 'Running'`;
    for await (const { workflowId, startTime } of client.workflow.list({ query })) {
      running.set(workflowId, startTime.getTime());
    }
    return running;
  }

  /** When a turn has ended, if it has; one that has just begun may not be among those that run yet. */
  async #endOf(turnId: string): Promise<number | undefined> {
    const { closedAt } = (await describeExecution(this.#options.client, turnWorkflowId(turnId))) ?? {};
    return closedAt === undefined ? undefined : Date.parse(closedAt);
  }

  async #stuck(workflowIds: string[]): Promise<number> {
    const { client } = this.#options;
    const found = await Promise.all(workflowIds.slice(0, MAX_LOOKED_AT).map((id) => describeExecution(client, id)));
    return found.filter((one) => (one?.workflowTask?.attempt ?? 0) >= STUCK_ATTEMPTS).length;
  }
}

/** All metrics of a process: ours, those of Node, and those of Temporal's SDK. */
export function createScrape(services: Services & { readiness: ReadinessCheck }): Scrape {
  const { metrics, readiness, log } = services;
  const workload = new Workload({ ...services, taskQueue: services.config.temporal.taskQueue });
  return async () => {
    const theirs = temporalMetrics().catch((error: unknown) => {
      log.warn({ err: error }, "the metrics of Temporal's SDK can not be read");
      return '';
    });
    await Promise.all([workload.refresh(), readiness.check()]);
    const { registry } = metrics;
    // The library writes it in its own way.
    const ours = (await registry.metrics()).replaceAll(/ Nan$/gm, ' NaN');
    return { contentType: registry.contentType, text: ours + (await theirs) };
  };
}
