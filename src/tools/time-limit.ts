import { createContext, Script } from 'node:vm';

const script = new Script('work()');
const context = createContext({ work: (): unknown => undefined });

/**
 * Runs `work` for at most `ms` milliseconds of this thread's time, for code whose cost others decide (a regular
 * expression can take years). The limit itself costs 0.2 ms.
 * @throws an error with the code `ERR_SCRIPT_EXECUTION_TIMEOUT`, and whatever `work` throws.
 */
export function withinTime<T>(ms: number, work: () => T): T {
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
