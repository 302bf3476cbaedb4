/** What is measured of one form of Everturn. Times are medians in milliseconds, ratios belong to one run. */
export interface Report {
  /** From the request of a plain turn to its first text, with a model that answers immediately. */
  first_delta_ms: number;
  first_delta_behind_200_ms: number;
  /** The same through a handler without Temporal. */
  bare_first_delta_behind_200_ms: number;
  step_ms: number;
  baseline_step_ms: number;
  step_ratio: number;
  step_ratio_with_reader: number;
  /** By the number of steps in the turn. */
  bytes_per_step: Record<string, number>;
  /** By the number of turns that run at once. */
  turns_per_second: Record<string, number>;
  turns_ratio_16: number;
  /** Latency from the model's word to 1,000 readers: all of one turn, and five of each of 200 turns. */
  fan_out: { one_turn: FanOut; turns_200: FanOut };
}

export interface FanOut {
  /** Words that a reader got twice, on average, because a model call that was considered lost was repeated. */
  said_again: number;
  lag_p50_ms: number;
  lag_p99_ms: number;
  /** Memory of the process that the readers are connected to, before and at the end. */
  memory_mb: [number, number];
}
