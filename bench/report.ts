/** What is measured of one form of Everturn. Times are medians in milliseconds, ratios belong to one run. */
export interface Report {
  /** From the request of a plain turn to its first text, with a model that responds immediately. */
  first_delta_ms: number;
  /** From the request of the same turn with `stream: false` to its response, which is sent after its acceptance. */
  accepted_ms: number;
  /** As `first_delta_ms`, for an agent with an MCP server whose tool is not called. */
  first_delta_mcp_ms: number;
  first_delta_behind_200_ms: number;
  /** The same through a handler without Temporal. */
  bare_first_delta_behind_200_ms: number;
  step_ms: number;
  baseline_step_ms: number;
  /** The same model call and tool call in a plain loop, without Temporal. */
  plain_step_ms: number;
  step_ratio: number;
  step_ratio_with_reader: number;
  /** The same with a tool that is not read-only, whose calls have activities of their own. */
  step_ratio_with_effect: number;
  /** The same with a read-only tool of a program, which is called over its standard input and output. */
  step_ratio_with_stdio: number;
  /** By the number of steps in the turn. */
  bytes_per_step: Record<string, number>;
  /** A turn of 20 steps with a 200 ms model and a 20 ms tool, beside a plain loop in one process. */
  loop_ratio_20: number;
  /** Workflow tasks of a plain turn in a warm session: its own and those of the session. */
  tasks_per_turn: number;
  activities_per_turn: number;
  timers_per_turn: number;
  /** By the number of turns that run at once. */
  turns_per_second: Record<string, number>;
  turns_ratio_16: number;
  /** Processor time of a plain turn with 16 at once. Only Linux provides it. */
  cpu_ms_per_turn?: ProcessorTime;
  /** Latency from the model's word to 1,000 readers: all of one turn, and five of each of 200 turns. */
  fan_out: { one_turn: FanOut; turns_200: FanOut };
}

/** Processor time in milliseconds. */
export interface ProcessorTime {
  /** All processes of Everturn. */
  ours: number;
  temporal: number;
  /** The server that Everturn's catalog and Temporal share; 0 with the embedded Temporal. */
  postgres: number;
}

export interface FanOut {
  /** Words that a reader got twice, on average, because a model call that was considered lost was repeated. */
  duplicate_words: number;
  lag_p50_ms: number;
  lag_p99_ms: number;
  /** Memory of the process that the readers are connected to, before and at the end. */
  memory_mb: [number, number];
}
