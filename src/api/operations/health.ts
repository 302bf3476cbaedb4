import { z } from 'zod';
import type { ApiContext, Finding } from '../http/context.ts';
import { ApiError, standardErrors } from '../http/errors.ts';
import { json, type Route } from '../http/route.ts';
import { routesOf } from './route.ts';

const route = routesOf('Operations');

const findings = z.object({
  status: z.literal('ready'),
  problems: z.array(z.string()),
  warnings: z
    .array(z.string())
    .meta({ description: 'problems that do not prevent the server from processing requests' }),
});

interface HealthContext extends Pick<ApiContext, 'readiness'> {
  /** Whether the caller may see the names of hosts and folders. */
  saysWhy: () => boolean;
}

/** Liveness and readiness, for load balancers and operators; they need no key. */
export function healthRoutes({ readiness, saysWhy }: HealthContext): Route[] {
  const toText = ({ problem, reason, since }: Finding): string =>
    `${problem}${saysWhy() ? `: ${reason}` : ''} (since ${since})`;
  return [
    route('get', '/healthz', {
      id: 'getHealth',
      summary: 'Check whether the process is alive',
      response: json(z.object({ status: z.literal('ok') }), { status: 'ok' }),
      errors: ['unavailable'],
      handler: () => ({ status: 'ok' as const }),
    }),
    route('get', '/readyz', {
      id: 'getReadiness',
      summary: 'Check whether the server is ready to process requests',
      response: { written: { 'application/json': json(findings, { status: 'ready', problems: [], warnings: [] }) } },
      errors: ['unavailable'],
      handler: async ({ response }) => {
        const result = await readiness.check();
        const [problems, warnings] = [result.problems.map(toText), result.warnings.map(toText)];
        if (problems.length === 0) {
          response.json({ status: 'ready', problems, warnings });
          return;
        }
        const answer = standardErrors.toResponse(
          new ApiError('unavailable', `the server is not ready: ${problems.join('; ')}`),
        );
        response.status(answer.status).set(answer.headers);
        response.json({ status: 'not ready', problems, warnings, ...answer.body });
      },
    }),
  ];
}
