import { createContext, Script } from 'node:vm';
import { setTimeout as sleep } from 'node:timers/promises';

/** Node fires a timer with a longer delay at once. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

const script = new Script('work()');
const context = createContext({ work: (): unknown => undefined });

/** How often work is started that other processes slow down, each time with twice the wall-clock time. */
const MAX_TRIES = 6;

/** Begins to measure the processor time of this thread. Returns what it has used since then, in milliseconds. */
export function cpuStopwatch(): () => number {
  const before = process.threadCpuUsage();
  return () => {
    const { user, system } = process.threadCpuUsage(before);
    return (user + system) / 1000;
  };
}

/**
 * Runs `work` for at most about `ms` milliseconds of this thread's processor time, for code whose cost depends on
 * foreign input (a regular expression can take years). V8 measures wall-clock time: work that got less than three
 * quarters of it from the processor is restarted, so it must have no side effects. The limit itself costs 0.2 ms.
 * @throws an error with the code `ERR_SCRIPT_EXECUTION_TIMEOUT`, or what `work` throws
 */
export function withCpuLimit<T>(ms: number, work: () => T): T {
  const used = cpuStopwatch();
  for (let tries = 1; ; tries++) {
    try {
      return runFor(ms * 2 ** (tries - 1), work);
    } catch (error) {
      const isHeldUp = isTimeout(error) && used() < ms * 0.75;
      if (!isHeldUp || tries === MAX_TRIES) throw error;
    }
  }
}

function isTimeout(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ERR_SCRIPT_EXECUTION_TIMEOUT';
}

function runFor<T>(ms: number, work: () => T): T {
  let result: { value: T } | undefined;
  context.work = (): void => {
    result = { value: work() };
  };
  try {
    script.runInContext(context, { timeout: ms });
  } finally {
    context.work = undefined;
  }
  if (!result) throw new Error('the work did not run');
  return result.value;
}

/** Aborts its signal if it is not reset for `idleMs` milliseconds. */
export class SilenceTimer {
  readonly #controller = new AbortController();
  #timer: NodeJS.Timeout;

  constructor(idleMs: number) {
    this.#timer = this.#start(idleMs);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Starts the interval again. */
  reset(): void {
    this.#timer.refresh();
  }

  /** Starts another interval. */
  change(idleMs: number): void {
    this.stop();
    this.#timer = this.#start(idleMs);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  #start(idleMs: number): NodeJS.Timeout {
    return setTimeout(() => this.#controller.abort(), idleMs);
  }
}

/** Waits for `work`, or rejects if it takes longer than `ms` milliseconds; its outcome is then ignored. */
export async function withTimeout<T>(
  ms: number,
  work: Promise<T>,
  message = `no answer within ${ms / 1000} s`,
): Promise<T> {
  const timer = new AbortController();
  const late = sleep(ms, undefined, { signal: timer.signal, ref: false }).then(() => {
    throw new Error(message);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    timer.abort();
    // A rejection of the promise that lost the race must not be unhandled.
    late.catch(() => undefined);
    work.catch(() => undefined);
  }
}
