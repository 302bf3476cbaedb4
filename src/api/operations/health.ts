import { z } from 'zod';
import type { ApiContext, Finding } from '../http/context.ts';
import { ApiError, errorAnswer } from '../http/errors.ts';
import { json, route, type Route } from '../http/route.ts';

const findings = z.object({
  status: z.literal('ready'),
  problems: z.array(z.string()),
  warnings: z
    .array(z.string())
    .meta({ description: 'what does not work, and does not keep requests from being answered' }),
});

interface HealthContext extends Pick<ApiContext, 'readiness'> {
  /** Whether the caller may see the names of hosts and folders. */
  saysWhy: () => boolean;
}

/** Whether the process lives, and whether it can do its work; for load balancers and operators, without a key. */
export function healthRoutes({ readiness, saysWhy }: HealthContext): Route[] {
  const inWords = ({ problem, reason, since }: Finding): string =>
    `${problem}${saysWhy() ? `: ${reason}` : ''} (since ${since})`;
  return [
    route(
      'get',
      '/healthz',
      {
        id: 'getHealth',
        tag: 'Operations',
        summary: 'Whether the process lives',
        answer: json(z.object({ status: z.literal('ok') }), { status: 'ok' }),
      },
      () => ({ status: 'ok' as const }),
    ),
    route(
      'get',
      '/readyz',
      {
        id: 'getReadiness',
        tag: 'Operations',
        summary: 'Whether the server can do its work, or what is wrong',
        answer: { written: { 'application/json': json(findings, { status: 'ready', problems: [], warnings: [] }) } },
        errors: ['unavailable'],
      },
      async ({ response }) => {
        const found = await readiness.check();
        const [problems, warnings] = [found.problems.map(inWords), found.warnings.map(inWords)];
        if (problems.length === 0) {
          response.json({ status: 'ready', problems, warnings });
          return;
        }
        const answer = errorAnswer(new ApiError('unavailable', `the server is not ready: ${problems.join('; ')}`));
        response.status(answer.status).set(answer.headers);
        response.json({ status: 'not ready', problems, warnings, ...answer.body });
      },
    ),
  ];
}
