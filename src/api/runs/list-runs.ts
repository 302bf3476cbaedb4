import { z } from 'zod';
import { mayReadAll, readerOf, type Reader } from '../../auth/rights.ts';
import type { SessionRow } from '../../catalog/schema.ts';
import { hashOf } from '../../lib/hash.ts';
import { identifier } from '../../spec/bounds.ts';
import type { ApiContext } from '../http/context.ts';
import { createdAfter, createdQuery, pageOf, pageOfRows, positionAfter } from '../http/pagination.ts';
import type { Route } from '../http/route.ts';
import { routesOf } from './route.ts';
import { exampleRunSummary } from './examples.ts';
import { toRunHeader } from './run-header.ts';
import { STATES_OF } from './run-states.ts';
import {
  RUN_STATUSES,
  runSummary,
  type RunRequiredAction,
  type RunFigures,
  type RunStatus,
  type RunSummary,
} from './wire/run.ts';

const route = routesOf('Runs');

const LIMIT = 10;

const listQuery = createdQuery(LIMIT).extend({
  agent_name: identifier.optional(),
  status: z.enum(RUN_STATUSES).optional(),
});

/** The runs that a caller may read, as the catalog has them: it follows a run within a moment. */
export function listRoutes(context: ApiContext): Route[] {
  const { catalog } = context;
  return [
    route('get', '/v1/runs', {
      id: 'listRuns',
      summary: 'The runs that you may read, newest first',
      description:
        'Without their items. A list follows a run within a moment; its figures are those of its last pause, or of its end.',
      query: listQuery,
      response: pageOf(runSummary, [exampleRunSummary], LIMIT),
      handler: async ({ query: { limit, page_token: token, order, status, ...filters }, caller }) => {
        const subjectId = mayReadAll(caller) ? undefined : caller.subject.subjectId;
        const fingerprint = hashOf({ subjectId: subjectId ?? null, order, status: status ?? null, filters });
        const { agent_name: agentName, start_timestamp: from, end_timestamp: to } = filters;
        const found = await catalog.sessions.list(
          {
            type: 'run',
            agentName,
            subjectId,
            from,
            to,
            ...(status ? { states: STATES_OF[status], isClosed: false } : { exceptState: 'pending' }),
          },
          { order, after: createdAfter(token, fingerprint), limit: limit + 1 },
        );
        const summaries = await catalog.runSummaries.of(found.map(({ id }) => id));
        return pageOfRows(found, limit, {
          toItem: (session) => summaryOf(session, summaries.get(session.id), readerOf(caller, session)),
          after: (last) => positionAfter(last, fingerprint),
        });
      },
    }),
  ];
}

function summaryOf(session: SessionRow, stored: string | undefined, { isOwner }: Reader): RunSummary {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `createRunStates`
  const summary = stored === undefined ? undefined : (JSON.parse(stored) as RunFigures);
  const { required_action: action, ...figures } = summary ?? unknownFigures(session);
  // A run that has resumed has the figures of its pause until it is archived again.
  const status = statusOf(session) ?? figures.status;
  return {
    ...toRunHeader(session),
    ...figures,
    status,
    ...(action && status === 'requires_action' && { required_action: isOwner ? action : withoutLinks(action) }),
  };
}

function statusOf({ state }: SessionRow): RunStatus | undefined {
  return RUN_STATUSES.find((status) => STATES_OF[status].some((one) => one === state));
}

/** The figures of a run that has neither paused nor ended, or whose log cannot be read. */
function unknownFigures({ ended_at, model_calls, input_tokens, output_tokens, cost_in_usd }: SessionRow): RunFigures {
  return {
    status: 'running',
    completed_at: ended_at,
    turns: model_calls,
    usage: input_tokens + output_tokens > 0 ? { input_tokens, output_tokens } : null,
    cost: cost_in_usd,
    unreported_attempts: 0,
  };
}

/** Only the owner can sign in. */
function withoutLinks(action: RunRequiredAction): RunRequiredAction {
  const { sign_ins: signIns, ...rest } = action;
  const withoutLink = (signIn: NonNullable<typeof signIns>[number]) => {
    const { auth_url: _, ...shown } = signIn;
    return shown;
  };
  return { ...rest, ...(signIns && { sign_ins: signIns.map(withoutLink) }) };
}
