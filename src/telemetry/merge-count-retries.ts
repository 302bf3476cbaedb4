import { ApplicationFailure, CancelledFailure } from '@temporalio/common';
import type { ActivityInterceptorsFactory } from '@temporalio/worker';
import type { Metrics } from './metrics.ts';

/**
 * Counts the attempts that throw: what our activities do not want to be tried again they return. Those that died with
 * their worker are counted by the attempt after, of an activity that tells them from others: `callModel`.
 */
export function countRetries(metrics: Metrics): ActivityInterceptorsFactory {
  return ({ info }) => ({
    inbound: {
      execute: async (input, next) => {
        try {
          return await next(input);
        } catch (error) {
          const reason = reasonOf(error);
          if (reason !== undefined) metrics.retries.inc({ activity: info.activityType, reason });
          throw error;
        }
      },
    },
  });
}

/** Undefined if nobody tries again. Our own failures have types of which there are few. */
function reasonOf(error: unknown): string | undefined {
  if (error instanceof CancelledFailure) return undefined;
  if (!(error instanceof ApplicationFailure)) return 'unavailable';
  return error.nonRetryable ? undefined : (error.type ?? 'error');
}
