import type { IRouter } from 'express';
import type { ApiContext } from './context.ts';
import { route } from './routes.ts';

/** Whether the process lives, and whether it can do its work; for load balancers and operators, without a key. */
export function healthRoutes(router: IRouter, { checkReadiness, log }: ApiContext): void {
  route(router, '/healthz', {
    get: (_request, response) => {
      response.json({ status: 'ok' });
    },
  });
  route(router, '/readyz', {
    get: async (_request, response) => {
      const problems = await checkReadiness();
      if (problems.length > 0) log.warn({ problems }, 'not ready');
      response.status(problems.length > 0 ? 503 : 200);
      response.json({ status: problems.length > 0 ? 'not ready' : 'ready', problems });
    },
  });
}
