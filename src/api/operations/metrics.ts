import { z } from 'zod';
import type { ApiContext } from '../http/context.ts';
import { route, type Route } from '../http/route.ts';

const text = {
  schema: z.string(),
  example:
    '# HELP everturn_readers Event streams that are open here\n# TYPE everturn_readers gauge\neverturn_readers 3\n',
};

/** What the process counts, for Prometheus. */
export function metricsRoutes({ scrape }: Pick<ApiContext, 'scrape'>): Route[] {
  return [
    route(
      'get',
      '/metrics',
      {
        id: 'getMetrics',
        tag: 'Operations',
        summary: "Metrics in Prometheus' text format",
        description: 'Of this process. The port EVERTURN_METRICS_PORT has them without a key.',
        requires: 'readMetrics',
        answer: { written: { 'text/plain': text } },
      },
      async ({ response }) => {
        const { contentType, text: body } = await scrape();
        response.type(contentType).send(body);
      },
    ),
  ];
}
