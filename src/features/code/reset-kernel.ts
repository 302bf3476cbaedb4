import { hasKernel } from './ended-kernels.ts';
import { resetIdsOf, resetsOf, type KernelReset } from './kernel-state.ts';
import type { Sandboxes } from './sandbox-rows.ts';

/** The number of attempts of a reset, while other resets and the host change the row. */
const MAX_ATTEMPTS = 10;

/** The number of remembered resets of a session, by which repeated requests are recognized. */
const MAX_REMEMBERED = 20;

interface ResetOptions {
  sandboxes: Pick<Sandboxes, 'get' | 'createUnopened' | 'reset'>;
  /** Whether code of the thread runs, or waits in a running turn. */
  runsCode: () => Promise<boolean>;
}

/**
 * Makes the host restart the kernel of a thread, at the latest before its next cell, once for each id. Has no effect on
 * a thread with neither a kernel nor stored variables. False if code of the thread, or a call in the sandbox, runs.
 */
export async function resetKernel(
  sessionId: string,
  reset: KernelReset,
  { sandboxes, runsCode }: ResetOptions,
): Promise<boolean> {
  const { threadId, id } = reset;
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
    const row = (await sandboxes.get(sessionId)) ?? (await sandboxes.createUnopened(sessionId));
    const ids = resetIdsOf(row);
    if (ids.includes(id)) return true;
    if (await runsCode()) return false;
    const others = resetsOf(row).filter((other) => other.threadId !== threadId);
    const changed = {
      resets: hasKernel(row, threadId) ? JSON.stringify([...others, reset]) : row.resets,
      reset_ids: JSON.stringify([...ids, id].slice(-MAX_REMEMBERED)),
    };
    if (await sandboxes.reset(row, changed, Date.now())) return true;
    const now = await sandboxes.get(sessionId);
    if (now?.resets === row.resets && now.reset_ids === row.reset_ids) return false;
  }
  return false;
}
