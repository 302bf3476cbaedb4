import type { ActivityInterceptorsFactory } from '@temporalio/worker';
import { LRUCache } from 'lru-cache';
import type { Logger } from 'pino';

/**
 * The embedded server takes 7 ms, one on PostgreSQL on a small machine 20 ms, a small server with default settings 50 ms
 * (1.32) or 100 ms (1.29).
 */
const SLOW_MS = 40;

/**
 * Only so many slow steps in a row are reported. A turn that waits for a person or a client has a slow step too, but a
 * quick one before it, with which the wait was indexed. One pause of a process or a database slows the steps of all
 * turns, but not for so long.
 */
const SLOW_STEPS = 20;
const SLOW_FOR_MS = 10_000;

/** An activity that has succeeded at its first attempt. */
interface Ended {
  /** Its number among the activities of its run. */
  number: number;
  /** When the server scheduled it, in milliseconds since 1970. */
  scheduledAt: number;
  durationMs: number;
}

/**
 * Logs a warning, once, if Temporal dispatches the steps of turns slowly: each turn has many. The time from one activity
 * of a turn to the next is measured, without the activity itself, if this process ran both. The times at which they were
 * scheduled are both the server's, so clocks need not agree.
 */
export function warnOfSlowSteps(log: Logger): ActivityInterceptorsFactory {
  const lastEnded = new LRUCache<string, Ended>({ max: 1_000 });
  let row: { steps: number; since: number; fastestMs: number } | undefined;
  let hasWarned = false;

  const observe = (stepMs: number, at: number): void => {
    if (stepMs < SLOW_MS) {
      row = undefined;
      return;
    }
    row ??= { steps: 0, since: at, fastestMs: stepMs };
    row.steps += 1;
    row.fastestMs = Math.min(row.fastestMs, stepMs);
    if (row.steps < SLOW_STEPS || at - row.since < SLOW_FOR_MS) return;
    hasWarned = true;
    lastEnded.clear();
    const { steps, fastestMs } = row;
    log.warn(
      { steps, fastestMs },
      `Temporal takes ${fastestMs} ms or more from one activity to the next, so turns are slow. If you run the server ` +
        'yourself, set history.transferProcessorMaxPollRPS to 2000 (the default is 20 per shard) and ' +
        'system.enableActivityEagerExecution to true in its dynamic configuration. If they are set, Temporal, its ' +
        'database or the workers lack processor time',
    );
  };

  return ({ info }) => ({
    inbound: {
      execute: async (input, next) => {
        const { workflowType, workflowExecution, attempt, scheduledTimestampMs: scheduledAt } = info;
        // A turn's activities follow one another; those of a session may be days apart.
        if (hasWarned || workflowType !== 'turn' || !workflowExecution || attempt > 1) return next(input);
        const { runId } = workflowExecution;
        const number = Number(info.activityId);
        const previous = lastEnded.get(runId);
        const stepMs = previous ? scheduledAt - previous.scheduledAt - previous.durationMs : -1;
        // Negative for two that were scheduled together.
        if (previous?.number === number - 1 && stepMs >= 0) observe(Math.round(stepMs), scheduledAt);
        const startedAt = performance.now();
        const result = await next(input);
        lastEnded.set(runId, { number, scheduledAt, durationMs: performance.now() - startedAt });
        return result;
      },
    },
  });
}
