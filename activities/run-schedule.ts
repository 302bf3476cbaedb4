import type { ScheduledTime } from '../src/core/scheduled-run.ts';
import { runSchedule as run } from '../src/features/schedules/scheduled-runs.ts';
import { withHeartbeat } from '../src/temporal/activity-heartbeat.ts';
import type { Dependencies } from './dependencies.ts';

/** Creates the session of a schedule that is due, and records what became of it: see `src/engine/scheduled-runs.ts`. */
export function createRunSchedule(dependencies: Dependencies) {
  return function runSchedule(due: ScheduledTime): Promise<void> {
    return withHeartbeat(() => run(dependencies, due));
  };
}
