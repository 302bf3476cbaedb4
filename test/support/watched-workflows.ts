import { proxySinks, type Sinks, type WorkflowInterceptorsFactory } from '@temporalio/workflow';
import { Turn } from '../../src/core/turn.ts';
import type { LogEntry } from '../../src/core/records/log.ts';

/** What a test sees of the workflows of a bundle that has this module among its interceptors, also while they replay. */
export interface WatchSinks extends Sinks {
  watch: {
    /** The workflow adds to its log. */
    entries(entries: LogEntry[]): void;
    /** The workflow schedules an activity. */
    scheduled(activityType: string, input: unknown): void;
  };
}

const { watch } = proxySinks<WatchSinks>();

// oxlint-disable-next-line typescript/unbound-method -- called with `this` below
const { started, ended, taskEnded } = Turn.prototype;

Turn.prototype.started = function (...args) {
  const entries = started.apply(this, args);
  watch.entries(entries);
  return entries;
};
Turn.prototype.ended = function (...args) {
  const entries = ended.apply(this, args);
  watch.entries(entries);
  return entries;
};
Turn.prototype.taskEnded = function (...args) {
  const end = taskEnded.apply(this, args);
  watch.entries(end.entries);
  return end;
};

export const interceptors: WorkflowInterceptorsFactory = () => ({
  outbound: [
    {
      scheduleActivity: (input, next) => {
        watch.scheduled(input.activityType, input.args[0]);
        return next(input);
      },
    },
  ],
});
