import { withTimeout } from '../lib/timeout.ts';
import { describeExecution, type WorkflowExecution } from '../temporal/describe-workflow.ts';
import { DELETE_SESSION_WORKFLOW, sessionWorkflowId, TURN_WORKFLOW, turnWorkflowId } from '../core/temporal-names.ts';
import type { ReadinessCheck, Scrape } from '../api/http/context.ts';
import type { Services } from './services.ts';
import { temporalMetrics } from '../telemetry/temporal-metrics.ts';

interface WorkloadOptions extends Pick<Services, 'client' | 'catalog' | 'metrics' | 'log'> {
  taskQueue: string;
}

/** The gauges without labels. Ages are in seconds. */
const GAUGES = ['turnsRunning', 'archiveBacklog', 'archiveBacklogAge', 'webhookBacklogAge'] as const;

interface WorkloadSample extends Record<(typeof GAUGES)[number], number> {
  stuckWorkflows: Record<string, number>;
  storedBytes: { all: number; largestSubject: number };
}

/** The stores are queried at most this often, however often metrics are scraped. */
const MIN_AGE_MS = 5_000;

/** For all queries together: a scrape must not hang when a store does. */
const TIMEOUT_MS = 3_000;

/** Younger workflows are not examined. */
const MIN_WORKFLOW_AGE_MS = 30_000;

/**
 * The number of workflows of a type that are examined, oldest first; there are more only if something is badly wrong.
 */
const MAX_EXAMINED = 200;

/** How old the sum of stored bytes may be. */
const STORED_BYTES_MS = 60_000;

/** A single failed workflow task may have met a worker that was stopping; repeated failures indicate a bug. */
const STUCK_ATTEMPTS = 3;

/** A task waits this long if no worker of its version is running, or if the workers are overloaded. */
const STUCK_WAIT_MS = 60_000;

/**
 * Sets the gauges that cover all processes and are read from the stores: running turns, ended turns that are not
 * archived, deliveries that wait, stored bytes, and stuck workflows. Temporal 1.29 cannot list the last, so the
 * workflows that matter are examined one by one: running turns, the sessions of turns that are not archived, and
 * removals of sessions.
 */
class Workload {
  readonly #options: WorkloadOptions;
  #refreshedAt = -Infinity;
  #refreshing: Promise<void> = Promise.resolve();
  #stored: { at: number; totals: WorkloadSample['storedBytes'] } | undefined;

  constructor(options: WorkloadOptions) {
    this.#options = options;
  }

  /** Updates the gauges. While a store is unavailable they have no value. Never rejects. */
  refresh(): Promise<void> {
    if (performance.now() - this.#refreshedAt < MIN_AGE_MS) return this.#refreshing;
    this.#refreshedAt = performance.now();
    this.#refreshing = this.#refresh();
    return this.#refreshing;
  }

  async #refresh(): Promise<void> {
    const { client, log, metrics } = this.#options;
    const { stuckWorkflows, storedBytes } = metrics;
    try {
      // The deadline applies to Temporal only; queries to a catalog that hangs are not cancelled.
      const querying = client.connection.withDeadline(Date.now() + TIMEOUT_MS, () => this.#query());
      const found = await withTimeout(TIMEOUT_MS, querying);
      for (const name of GAUGES) metrics[name].set(found[name]);
      for (const [type, count] of Object.entries(found.stuckWorkflows)) stuckWorkflows.set({ type }, count);
      storedBytes.set({ of: 'all' }, found.storedBytes.all);
      storedBytes.set({ of: 'largest_subject' }, found.storedBytes.largestSubject);
    } catch (error) {
      for (const name of GAUGES) metrics[name].remove();
      // Removes all label sets. On a gauge without labels `reset` would set 0.
      stuckWorkflows.reset();
      storedBytes.reset();
      log.warn({ err: error }, 'the workload could not be measured');
    }
  }

  async #query(): Promise<WorkloadSample> {
    const { catalog } = this.#options;
    const running = await this.#running(TURN_WORKFLOW);
    const removals = await this.#running(DELETE_SESSION_WORKFLOW);
    const unarchived = await catalog.turns.unarchived();
    const ended = unarchived.filter(({ id }) => !running.has(turnWorkflowId(id)));
    const endedAt = await Promise.all(ended.slice(0, MAX_EXAMINED).map(({ id }) => this.#endOf(id)));
    const waiting = endedAt.filter((at) => at !== undefined);
    const oldestDelivery = await catalog.deliveries.oldestPending();
    const before = Date.now() - MIN_WORKFLOW_AGE_MS;
    const oldest = (workflows: Map<string, number>): string[] => {
      const slow = [...workflows].filter(([, startedAt]) => startedAt < before);
      return slow.toSorted(([, a], [, b]) => a - b).map(([id]) => id);
    };
    const old = unarchived.filter(({ created_at: createdAt }) => Date.parse(createdAt) < before);
    const sessions = new Set(old.map(({ session_id: id }) => id));
    return {
      turnsRunning: running.size,
      archiveBacklog: waiting.length + Math.max(0, ended.length - MAX_EXAMINED),
      archiveBacklogAge: waiting.length > 0 ? (Date.now() - Math.min(...waiting)) / 1000 : 0,
      webhookBacklogAge: oldestDelivery === undefined ? 0 : (Date.now() - Date.parse(oldestDelivery)) / 1000,
      stuckWorkflows: {
        turn: await this.#stuck(oldest(running)),
        session: await this.#stuck([...sessions].map(sessionWorkflowId)),
        removal: await this.#stuck(oldest(removals)),
      },
      storedBytes: await this.#storedBytes(),
    };
  }

  /** The sum reads a row for each session that stores something, so it is made less often. */
  async #storedBytes(): Promise<WorkloadSample['storedBytes']> {
    if (!this.#stored || Date.now() - this.#stored.at > STORED_BYTES_MS) {
      this.#stored = { at: Date.now(), totals: await this.#options.catalog.storedBytes.totals() };
    }
    return this.#stored.totals;
  }

  /** The running workflows of a type, with their start times. */
  async #running(type: string): Promise<Map<string, number>> {
    const { client, taskQueue } = this.#options;
    const running = new Map<string, number>();
    const query = `WorkflowType = '${type}' AND TaskQueue = '${taskQueue}' AND ExecutionStatus = 'Running'`;
    for await (const { workflowId, startTime } of client.workflow.list({ query })) {
      running.set(workflowId, startTime.getTime());
    }
    return running;
  }

  /** When a turn ended; undefined for a turn so new that Temporal does not list it as running yet. */
  async #endOf(turnId: string): Promise<number | undefined> {
    const { closedAt } = (await describeExecution(this.#options.client, turnWorkflowId(turnId))) ?? {};
    return closedAt === undefined ? undefined : Date.parse(closedAt);
  }

  async #stuck(workflowIds: string[]): Promise<number> {
    const { client } = this.#options;
    const found = await Promise.all(workflowIds.slice(0, MAX_EXAMINED).map((id) => describeExecution(client, id)));
    return found.filter((one) => one && isStuck(one)).length;
  }
}

/** Whether a workflow's task keeps failing, or one of its tasks is not taken by any worker. */
export function isStuck({ workflowTask: task, pendingActivities }: WorkflowExecution, now = Date.now()): boolean {
  if (task && task.attempt >= STUCK_ATTEMPTS) return true;
  const scheduled = pendingActivities.filter(({ state }) => state === 'scheduled').map((one) => one.scheduledAt);
  if (task?.state === 'scheduled') scheduled.push(task.since);
  return scheduled.some((at) => at !== undefined && now - Date.parse(at) > STUCK_WAIT_MS);
}

/** Collects all metrics of the process: its own, those of Node, those of Temporal's SDK, and those of the workload. */
export function createScrape(services: Services & { readiness: ReadinessCheck }): Scrape {
  const { readiness } = services;
  const workload = new Workload({ ...services, taskQueue: services.config.temporal.taskQueue });
  return createOwnScrape(services, () => Promise.all([workload.refresh(), readiness.check()]));
}

/** Collects the metrics of the process alone. `refresh` sets the gauges that are not set when they change. */
export function createOwnScrape(
  { metrics, log }: Pick<Services, 'metrics' | 'log'>,
  refresh: () => Promise<unknown>,
): Scrape {
  return async () => {
    const sdkMetrics = temporalMetrics().catch((error: unknown) => {
      log.warn({ err: error }, "the metrics of Temporal's SDK cannot be read");
      return '';
    });
    await refresh();
    const { registry } = metrics;
    // prom-client writes `Nan`, which Prometheus does not accept.
    const ownMetrics = (await registry.metrics()).replaceAll(/ Nan$/gm, ' NaN');
    return { contentType: registry.contentType, text: ownMetrics + (await sdkMetrics) };
  };
}
