export type DynamicConfig = Readonly<Record<string, string | number | boolean>>;

/**
 * Settings that make a server on one host fast enough for turns, measured on 1.29.1 with two cores. A step (a model
 * call and a tool call) takes 17 ms with them, and 200 ms with the defaults of the development server.
 */
export const DYNAMIC_CONFIG: DynamicConfig = {
  // The default is at most 20 rounds of task dispatch per second and shard, and the development server has one shard.
  'history.transferProcessorMaxPollRPS': 2000,
  'history.timerProcessorMaxPollRPS': 2000,
  // Timers are delayed by this much in case the clocks of several hosts disagree. With the default of a second, a timer
  // of 100 ms takes 1000 ms; with this, which suffices for the one clock of one host, 110 ms.
  'history.timerProcessorMaxTimeShift': '20ms',
  // With several partitions of a task queue, a task may wait 2 seconds if only one worker polls at a time.
  'matching.numTaskqueueReadPartitions': 1,
  'matching.numTaskqueueWritePartitions': 1,
  // The reply to a workflow task then carries the activities that it scheduled.
  'system.enableActivityEagerExecution': true,
  // The limit of concurrent long polls, one per watched turn; the default is 1200.
  'frontend.namespaceCount': 20_000,
  // The polls of a worker that freezes, or whose host loses its network, get tasks until its connection is considered
  // dead, which takes more than a minute by default.
  'frontend.keepAliveTime': '5s',
  'frontend.keepAliveTimeout': '5s',
};
