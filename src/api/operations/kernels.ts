import { z } from 'zod';
import type { ApiContext } from '../http/context.ts';
import { dataOf, type Route } from '../http/route.ts';
import { routesOf } from './route.ts';

const route = routesOf('Operations');

const kernelHost = z
  .object({
    host: z.string(),
    kernels: z.int().describe('how many kernels run on it'),
    free: z.int().describe('how many more it runs; others are stopped before one has to wait'),
    draining: z.boolean().describe('it stops soon, and gets no sessions'),
    last_seen: z.string().describe('ISO-8601, UTC, milliseconds'),
  })
  .meta({ id: 'KernelHost' });

const example: z.output<typeof kernelHost> = {
  host: 'everturn/kernels/3f0a4d6e-5b1c-4f7e-9a35-8b0f6f8f2a11',
  kernels: 2,
  free: 10,
  draining: false,
  last_seen: '2026-11-30T08:00:00.000Z',
};

/** `/v1/kernels`: the hosts on which the code of agents runs, for admins. */
export function kernelRoutes({ catalog }: Pick<ApiContext, 'catalog'>): Route[] {
  return [
    route('get', '/v1/kernels', {
      id: 'listKernelHosts',
      summary: 'The kernel hosts that run, at most 100',
      requires: 'readKernels',
      response: dataOf(z.array(kernelHost), [example]),
      handler: async () => {
        const hosts = await catalog.kernelHosts.running(Date.now());
        const data = hosts.map(({ host, kernels, capacity, state, seen_at: seenAt }) => ({
          host,
          kernels,
          free: Math.max(0, capacity - kernels),
          draining: state === 'draining',
          last_seen: seenAt,
        }));
        return { data };
      },
    }),
  ];
}
