import { createContext, Script } from 'node:vm';
import { setTimeout as sleep } from 'node:timers/promises';

const script = new Script('work()');
const context = createContext({ work: (): unknown => undefined });

/** How often work is begun again, each time with twice as long by the clock, that others on this machine have held up. */
const MAX_TRIES = 4;

/**
 * Runs `work` for at most about `ms` milliseconds of this thread's time, for code whose cost others decide (a regular
 * expression can take years). V8 measures by the clock: work that got less than three quarters of that from the processor is begun
 * again, so it must not have effects. The limit itself costs 0.2 ms.
 * @throws an error with the code `ERR_SCRIPT_EXECUTION_TIMEOUT`, and whatever `work` throws.
 */
export function withCpuLimit<T>(ms: number, work: () => T): T {
  const before = process.threadCpuUsage();
  for (let tries = 1; ; tries++) {
    try {
      return runFor(ms * 2 ** (tries - 1), work);
    } catch (error) {
      const { user, system } = process.threadCpuUsage(before);
      const isHeldUp = isTimeout(error) && (user + system) / 1000 < ms * 0.75;
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

/** Aborts when nothing has been heard for too long. */
export class IdleTimer {
  readonly #controller = new AbortController();
  readonly #timer: NodeJS.Timeout;

  constructor(idleMs: number) {
    this.#timer = setTimeout(() => this.#controller.abort(), idleMs);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Something was heard. */
  reset(): void {
    this.#timer.refresh();
  }

  stop(): void {
    clearTimeout(this.#timer);
  }
}

/** What `work` comes to, or an error if that takes longer than `ms` milliseconds; whatever comes later is ignored. */
export async function withTimeout<T>(
  ms: number,
  work: Promise<T>,
  tooLate = `no answer within ${ms / 1000} s`,
): Promise<T> {
  const timer = new AbortController();
  const late = sleep(ms, undefined, { signal: timer.signal, ref: false }).then(() => {
    throw new Error(tooLate);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    timer.abort();
    // Whatever comes now comes too late.
    late.catch(() => undefined);
    work.catch(() => undefined);
  }
}
