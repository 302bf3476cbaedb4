import { z } from 'zod';
import { mayReadAll, readerOf, type Reader } from '../../auth/rights.ts';
import type { TurnEnd } from '../../catalog/session-ends.ts';
import type { SessionRow } from '../../catalog/schema.ts';
import { runIdsOf } from '../../engine/runs.ts';
import { unlessNotFound } from '../../engine/turn-log-reader.ts';
import { isUnavailable } from '../../engine/unavailable.ts';
import { hashOf } from '../../lib/hash.ts';
import { identifier } from '../../spec/bounds.ts';
import type { ApiContext } from '../http/context.ts';
import { createdAfter, createdQuery, pageOf, pagination, placeAfter } from '../http/pagination.ts';
import { json, route, type Route } from '../http/route.ts';
import { exampleRunSummary } from './examples.ts';
import { followRun, type FollowedRun } from './follow-run.ts';
import { runHeader } from './run-header.ts';
import { RUN_STATUSES, runSummary, type RunStatus, type RunSummary } from './wire/run.ts';

const LIMIT = 10;

/** The status of a run whose log cannot be read, by the end of its turn; otherwise it has failed. */
const STATUS_OF_END = new Map<TurnEnd | null, RunStatus>([
  [null, 'running'],
  ['answered', 'completed'],
  ['unanswered', 'completed'],
  ['client-cancelled', 'cancelled'],
]);

const listQuery = createdQuery(LIMIT).extend({
  agent_name: identifier.optional(),
  status: z.enum(RUN_STATUSES).optional(),
});

/**
 * How the turns of runs with a status have ended, apart from those without an end in the index: it has the end of a run
 * shortly after the run, so these are told apart by their logs.
 */
const ENDS_OF: Record<RunStatus, readonly TurnEnd[]> = {
  running: [],
  requires_action: [],
  // A message with reasoning alone answers a run, but no turn; a refusal answers a turn, but no run.
  completed: ['answered', 'unanswered'],
  cancelled: ['client-cancelled'],
  failed: ['answered', 'unanswered', 'out_of_time', 'waiting', 'error', 'server-execution-timeout', 'abandoned'],
};

/** A list has no items, so the files of results are not read for it. */
const NO_FILES = { get: () => Promise.resolve(Buffer.alloc(0)) };

/** How many logs are read at once. */
const READ_AT_ONCE = 10;

/** The runs that a caller may read. With a status, pages may be shorter than their limit. */
export function listRoutes(context: ApiContext): Route[] {
  const { catalog } = context;
  return [
    route(
      'get',
      '/v1/runs',
      {
        id: 'listRuns',
        tag: 'Runs',
        summary: 'The runs that you may read, newest first',
        description: 'Without their items. With a `status`, a page may be shorter than its limit.',
        query: listQuery,
        answer: json(pageOf(runSummary), {
          data: [exampleRunSummary],
          pagination: { limit: LIMIT, next_page_token: null, previous_page_token: null },
        }),
        errors: ['invalid_page_token'],
      },
      async ({ query: { limit, page_token: token, order, status, ...filters }, caller }) => {
        const subjectId = mayReadAll(caller) ? undefined : caller.subject.subjectId;
        const fingerprint = hashOf({ subjectId: subjectId ?? null, order, status: status ?? null, filters });
        const { agent_name: agentName, start_timestamp: from, end_timestamp: to } = filters;
        const found = await catalog.sessions.list(
          { type: 'run', agentName, subjectId, from, to, lastEnds: status && ENDS_OF[status] },
          { order, after: createdAfter(token, fingerprint), limit: limit + 1 },
        );
        const shown = found.slice(0, limit);
        const data: RunSummary[] = [];
        for (let i = 0; i < shown.length; i += READ_AT_ONCE) {
          const read = await Promise.all(
            shown.slice(i, i + READ_AT_ONCE).map((session) => summaryOf(session, readerOf(caller, session))),
          );
          for (const one of read) if (one && (status === undefined || one.status === status)) data.push(one);
        }
        const last = found.length > limit ? shown.at(-1) : undefined;
        return { data, pagination: pagination(limit, placeAfter(last, fingerprint)) };
      },
    ),
  ];

  /** Undefined if the run has never begun: its request was interrupted. */
  async function summaryOf(session: SessionRow, reader: Reader): Promise<RunSummary | undefined> {
    const { turnId } = runIdsOf(session.id);
    const following = followRun({ ...context, blobs: NO_FILES }, { session, turnId }, { waitMs: 0 });
    let found: FollowedRun | undefined;
    try {
      found = await unlessNotFound(following);
    } catch (error) {
      if (isUnavailable(error)) throw error;
      context.log.error({ turnId, err: error }, 'a run whose log cannot be read is listed as the catalog has it');
      return unreadRun(session);
    }
    if (!found) return undefined;
    const { content: _, output: __, ...summary } = found.output.run(runHeader(session), reader);
    return summary;
  }
}

/** What the catalog has of a run. */
function unreadRun(session: SessionRow): RunSummary {
  const { last_end: end, ended_at, model_calls, input_tokens, output_tokens, cost_in_usd } = session;
  return {
    ...runHeader(session),
    status: STATUS_OF_END.get(end) ?? 'failed',
    completed_at: ended_at,
    turns: model_calls,
    usage: input_tokens + output_tokens > 0 ? { input_tokens, output_tokens } : null,
    cost: cost_in_usd,
    unreported_attempts: 0,
  };
}
