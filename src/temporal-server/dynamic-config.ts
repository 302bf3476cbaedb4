export type DynamicConfig = Readonly<Record<string, string | number | boolean>>;

/**
 * What makes a server on one host fit for turns, measured on 1.29.1 with two cores. The development server as it
 * comes takes 200 ms for a step (a model call and a tool call), with these 17.
 */
export const DYNAMIC_CONFIG: DynamicConfig = {
  // At most 20 rounds of task dispatch per second and shard otherwise, and the development server has one shard.
  'history.transferProcessorMaxPollRPS': 2000,
  'history.timerProcessorMaxPollRPS': 2000,
  // Timers are held back by this much, in case the clocks of several hosts disagree: a second by default, so that
  // a timer of 100 ms takes 1000. One host has one clock; with this it takes 110.
  'history.timerProcessorMaxTimeShift': '20ms',
  // With more than one partition of a task queue, a task for which one worker polls at a time may wait for 2 seconds.
  'matching.numTaskqueueReadPartitions': 1,
  'matching.numTaskqueueWritePartitions': 1,
  // The reply to a workflow task then carries the activities that it scheduled.
  'system.enableActivityEagerExecution': true,
  // Long polls at a time: one per watched turn; 1200 otherwise.
  'frontend.namespaceCount': 20_000,
  // A worker that freezes, or whose host loses its network, leaves its polls behind, and tasks are given to them until
  // its connection is taken for dead: for more than a minute otherwise.
  'frontend.keepAliveTime': '5s',
  'frontend.keepAliveTimeout': '5s',
};
