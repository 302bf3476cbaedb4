import { z } from 'zod';
import type { ApiContext } from '../http/context.ts';
import type { Route } from '../http/route.ts';
import { routesOf } from './route.ts';

const route = routesOf('Operations');

const text = {
  schema: z.string(),
  example:
    '# HELP everturn_readers Open event streams of this process\n# TYPE everturn_readers gauge\neverturn_readers 3\n',
};

/** The metrics of this process, for Prometheus. */
export function metricsRoutes({ scrape }: Pick<ApiContext, 'scrape'>): Route[] {
  return [
    route('get', '/metrics', {
      id: 'getMetrics',
      summary: "Get the metrics of this process in Prometheus' text format",
      description: 'The port EVERTURN_METRICS_PORT serves them without a key.',
      requires: 'readMetrics',
      response: { written: { 'text/plain': text } },
      handler: async ({ response }) => {
        const { contentType, text: body } = await scrape();
        response.type(contentType).send(body);
      },
    }),
  ];
}
