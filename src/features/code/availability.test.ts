import { expect, test } from 'vitest';
import { agentSpec } from '../../spec/agent-spec.ts';
import { kernelAvailability } from './availability.ts';
import type { KernelHosts } from './kernel-host-rows.ts';

type Host = Awaited<ReturnType<KernelHosts['running']>>[number];

test('code can be kept to hosts of the network if no host that may get a session has another wall', async () => {
  const spec = agentSpec.parse({ model: { name: 'm' }, code_actions: {} });
  const hosts = (...isolations: Host['isolation'][]) => {
    const rows = isolations.map((isolation, i): Host => {
      const state = isolation ? 'ready' : 'building';
      return { host: String(i), state, reason: null, isolation, kernels: 0, capacity: 1, seen_at: '' };
    });
    const kernelHosts = { running: () => Promise.resolve(rows) };
    return kernelAvailability(spec, { kernelHosts, perHost: undefined, ensureHost: undefined });
  };
  expect(await hosts('sandbox', 'sandbox', null)).toEqual({ state: 'ready', limitsNetwork: true });
  expect(await hosts('sandbox', 'confined')).toEqual({ state: 'ready', limitsNetwork: false });
  expect(await hosts('none')).toEqual({ state: 'ready', limitsNetwork: false });
  expect(await hosts(null)).toEqual({ state: 'building' });
});
