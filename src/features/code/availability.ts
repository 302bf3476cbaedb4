import { setTimeout as sleep } from 'node:timers/promises';
import type { AgentSpec } from '../../spec/agent-spec.ts';
import { codeActionsOf } from '../../spec/code-actions.ts';
import { limitsNetwork } from './kernel/wall.ts';
import type { KernelHosts } from './kernel-host-rows.ts';
import type { Prepared } from './prepared.ts';

/** Whether this server has kernels. `limitsNetwork`: all its hosts can restrict code to some hosts of the network. */
export type KernelAvailability = Prepared<{ limitsNetwork: boolean }>;

interface AvailabilitySources {
  kernelHosts: Pick<KernelHosts, 'running'>;
  /** The number of kernels per host; 0: none. */
  perHost: number | undefined;
  /** Starts a host, in a server with all roles. Returns the reason if the start has failed. */
  ensureHost: (() => string | undefined) | undefined;
}

/** How long the start of a turn waits for a starting host: a few seconds are enough once its environment is built. */
const WAIT_MS = 10_000;
const POLL_MS = 200;

/** Whether any kernel host can start kernels for an agent, or will soon. */
export async function kernelAvailability(
  spec: AgentSpec,
  { kernelHosts, perHost, ensureHost }: AvailabilitySources,
): Promise<KernelAvailability> {
  // Such an agent needs no kernels.
  if (!codeActionsOf(spec)) return { state: 'ready', limitsNetwork: true };
  if (perHost === 0) return { state: 'failed', reason: 'its operator allows no kernels (EVERTURN_KERNELS=0)' };
  const problem = ensureHost?.();
  const hosts = await kernelHosts.running(Date.now());
  const ready = hosts.filter(({ state }) => state === 'ready');
  // A session may get any of these hosts.
  if (ready.length > 0)
    return { state: 'ready', limitsNetwork: ready.every(({ isolation }) => limitsNetwork(isolation)) };
  const isBuilding = hosts.some(({ state }) => state === 'building');
  const failed = hosts.find(({ state }) => state === 'failed');
  if (problem !== undefined && !isBuilding) return { state: 'failed', reason: problem };
  // A host that was just started has no row yet.
  if (isBuilding || (ensureHost && !failed)) return { state: 'building' };
  if (failed) return { state: 'failed', reason: failed.reason ?? 'its kernel hosts have failed' };
  return { state: 'failed', reason: 'no kernel host runs: start one with `everturn kernel-host`' };
}

/** Why the code of an agent cannot run yet; undefined if it can, or never will. Waits for a few seconds. */
export async function kernelsNotReady(
  spec: AgentSpec,
  availability: (spec: AgentSpec) => Promise<KernelAvailability>,
): Promise<string | undefined> {
  for (const end = performance.now() + WAIT_MS; ; await sleep(POLL_MS)) {
    if ((await availability(spec)).state !== 'building') return undefined;
    if (performance.now() >= end) {
      return 'the environment of Python for the code of agents is being built, which takes a minute at the first start: retry';
    }
  }
}
