import type { IRouter } from 'express';
import type { ApiContext } from './context.ts';
import { ApiError, errorAnswer } from './errors.ts';
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
      if (problems.length === 0) {
        response.json({ status: 'ready', problems });
        return;
      }
      log.warn({ problems }, 'not ready');
      const answer = errorAnswer(new ApiError('unavailable', `the server is not ready: ${problems.join('; ')}`));
      response.status(answer.status).set(answer.headers);
      response.json({ status: 'not ready', problems, ...answer.body });
    },
  });
}
