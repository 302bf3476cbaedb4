import type { Isolation } from '../../core/records/sandbox.ts';
import type { KernelHosts } from './kernel-host-rows.ts';
import { kernelsOf, resetsOf, type KernelState, type ThreadKernelState } from './kernel-state.ts';
import type { SandboxRow } from './sandbox-rows.ts';

/** The state of a sandbox for clients. */
interface SandboxState {
  status: 'none' | 'ready' | 'busy' | 'suspended' | 'stopped';
  isolation: Isolation | null;
  kernels: ThreadKernelState[];
  /** When the last of its kernels is stopped if none is used, in milliseconds since 1970. */
  expiresAt: number | null;
}

/** The last state that the host has written, after pending resets. If the host is lost, no kernel runs. */
export async function sandboxState(
  row: SandboxRow | undefined,
  { kernelHosts }: { kernelHosts: Pick<KernelHosts, 'isRunning'> },
): Promise<SandboxState> {
  if (!row?.opened_by) return { status: 'none', isolation: null, kernels: [], expiresAt: null };
  const isAlive = await kernelHosts.isRunning(row.host, Date.now());
  const reset = new Set(resetsOf(row).map(({ threadId }) => threadId));
  const kernels = kernelsOf(row).map((kernel) => {
    return isAlive && !reset.has(kernel.threadId) ? kernel : stopped(kernel);
  });
  const has = (status: KernelState['status']): boolean => kernels.some((kernel) => kernel.status === status);
  const resting = has('ready') || (isAlive && kernels.length === 0) ? 'ready' : 'stopped';
  const status = isAlive && (row.calls > 0 || has('busy')) ? 'busy' : has('suspended') ? 'suspended' : resting;
  const times = kernels.flatMap(({ expiresAt }) => expiresAt ?? []);
  return { status, isolation: row.isolation, kernels, expiresAt: times.length > 0 ? Math.max(...times) : null };
}

function stopped<K extends KernelState>(kernel: K): K {
  return { ...kernel, status: 'stopped', expiresAt: null, memoryBytes: 0 };
}
