import { z } from 'zod';
import type { ApiContext } from '../http/context.ts';
import { json, type Route } from '../http/route.ts';
import { routesOf } from './route.ts';
import { useOf } from './token-budget.ts';

const route = routesOf('Agent sessions');

const sessionQuota = z
  .object({
    scope: z.enum(['user', 'org']),
    limit: z.int(),
    active: z
      .int()
      .describe(
        'sessions that work, or wait for a result; above the limit if messages to idle sessions have begun turns',
      ),
    available: z.int().describe('how many sessions of yours can begin at once'),
  })
  .meta({ id: 'QuotaStatus' });

const tokenQuota = z
  .object({
    limit: z.int().nullable(),
    used: z.int().nullable(),
    remaining: z.int().nullable(),
    window_start: z.iso.datetime(),
    window_end: z.iso.datetime().nullable(),
  })
  .meta({ id: 'TokenQuotaStatus' });

const A_DAY = { window_start: '2026-11-21T00:00:00.000Z', window_end: '2026-11-22T00:00:00.000Z' };

/** The quotas of callers, and their use. */
export function quotaRoutes(context: ApiContext): Route[] {
  return [
    route('get', '/api/v2/sessions/quota', {
      id: 'getSessionQuota',
      summary: 'How many sessions may work at once',
      description:
        'Of all callers of this server together; `available` is for the caller, of whom it also depends on the share of ' +
        'one subject. Sessions that are idle, or wait in the queue, are not counted.',
      response: json(sessionQuota, { scope: 'org', limit: 100, active: 3, available: 97 }),
      handler: async ({ caller }) => {
        const { limit, active, available } = await context.sessionQueue.quota(caller.subject.subjectId);
        return { scope: 'org' as const, limit, active, available };
      },
    }),
    route('get', '/api/v2/quota/tokens', {
      id: 'getTokenQuota',
      summary: 'How many tokens you may use',
      description:
        "The caller's budget in the current day or month of UTC. Without a limit of tokens, only what was used, if it " +
        'is counted.',
      response: json(tokenQuota, { limit: 2_000_000, used: 120_000, remaining: 1_880_000, ...A_DAY }),
      handler: async ({ caller }) => {
        const now = new Date();
        const use = await useOf(context, caller.subject.subjectId, now);
        if (!use) {
          return { limit: null, used: null, remaining: null, window_start: now.toISOString(), window_end: null };
        }
        const { report, start, end } = use;
        const limit = report.limit.tokens ?? null;
        const used = report.spent.tokens ?? 0;
        return {
          limit,
          used,
          remaining: limit === null ? null : Math.max(limit - used, 0),
          window_start: start,
          window_end: end,
        };
      },
    }),
  ];
}
