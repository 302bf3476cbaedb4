import type { Response } from 'express';
import { z } from 'zod';
import { BEGINNING } from '../../core/cursor.ts';
import type { Caller } from '../../core/subject.ts';
import { cancelTurns, deleteSession } from '../../engine/engine.ts';
import { authorizeRun, runNotFound, type Run } from '../../engine/runs.ts';
import { unlessNotFound } from '../../engine/turn-log-reader.ts';
import { hashOf } from '../../lib/hash.ts';
import type { ApiContext } from '../http/context.ts';
import type { ApiError } from '../http/errors.ts';
import { EventStream } from '../http/event-stream.ts';
import { afterSequenceNumber, idempotencyKey, lastEventId } from '../http/headers.ts';
import { json, route, type Route } from '../http/route.ts';
import { cursorOf } from '../http/turn-stream.ts';
import { describedAgent, registeredAgent } from './agent-of-run.ts';
import { answerWhenSettled } from './answer-when-settled.ts';
import { claimRun, startRun, type NewRun } from './create-run.ts';
import { exampleRun, exampleRunEvent, exampleRunRequest } from './examples.ts';
import { followRun, type FollowOptions } from './follow-run.ts';
import { listRoutes } from './list-runs.ts';
import { readItems } from './read-items.ts';
import { runHeader } from './run-header.ts';
import { withKnownResults } from './known-results.ts';
import { limitsOf } from './run-limits.ts';
import { streamRun } from './stream-run.ts';
import {
  agentRunRequest,
  DEFAULT_WAIT_SECONDS,
  runRequest,
  type AgentRunRequest,
  type RunRequest,
} from './wire/request.ts';
import { run as runResource, runStreamEvent, type Run as RunResource } from './wire/run.ts';

/** How long `GET` may wait for the end of a run. */
const MAX_WAIT_SECONDS = 60;

const seconds = `must be a number from 0 to ${MAX_WAIT_SECONDS}`;

const waitQuery = z.object({
  wait_seconds: z
    .string(seconds)
    .regex(/^\d+$/, seconds)
    .transform(Number)
    .pipe(z.int(seconds).max(MAX_WAIT_SECONDS, seconds))
    .default(0)
    .meta({
      description: 'how long to wait for the end of the run, or its next pause',
      override: ({ jsonSchema }) => {
        delete jsonSchema.pattern;
        Object.assign(jsonSchema, { type: 'integer', minimum: 0, maximum: MAX_WAIT_SECONDS, default: 0 });
      },
    }),
});

const run = json(runResource, exampleRun);
const events = json(runStreamEvent, exampleRunEvent);
const answer = { written: { 'application/json': run, 'text/event-stream': events } };

const ERRORS_OF_REQUESTS = [
  'forbidden',
  'invalid_items',
  'unsupported_part',
  'invalid_context',
  'run_in_progress',
  'duplicate_tool_name',
  'invalid_agent',
  'feature_not_available',
  'idempotency_key_reused',
  'request_expired',
  'too_many_turns',
  'too_many_streams',
] as const;

interface RunCall {
  body: RunRequest | AgentRunRequest;
  /** Equal for equal requests. */
  identity: unknown;
  readAgent: () => Promise<NewRun['agent']>;
  key: string | undefined;
  caller: Caller;
  rateLimitError?: ApiError | undefined;
  response: Response;
}

/** `/v1/runs`: runs of an agent, each with a conversation that the client keeps. */
export function runRoutes(context: ApiContext): Route[] {
  const { catalog, metrics, streamLimits } = context;
  return [
    ...listRoutes(context),
    route(
      'post',
      '/v1/runs',
      {
        id: 'createRun',
        handlesRateLimit: true,
        largeBody: true,
        requires: 'createSessions',
        tag: 'Runs',
        summary: 'Run an agent that the request describes',
        description:
          'The response is 200 whatever becomes of the run, which continues if the connection breaks. It is sent when ' +
          'the run ends or pauses, or after `wait_seconds`; its headers, with the id of the run, are sent at once.',
        headers: z.object(idempotencyKey),
        body: json(runRequest, exampleRunRequest),
        answer,
        errors: [...ERRORS_OF_REQUESTS],
      },
      async ({ headers, body, caller, rateLimitError, response }) =>
        create({
          body,
          identity: body,
          readAgent: () => Promise.resolve(describedAgent(body)),
          key: headers['Idempotency-Key'],
          caller,
          rateLimitError,
          response,
        }),
    ),
    route(
      'post',
      '/v1/agents/:agent_name/runs',
      {
        id: 'createRunOfAgent',
        handlesRateLimit: true,
        largeBody: true,
        requires: 'createSessions',
        tag: 'Runs',
        summary: 'Run a registered agent',
        description: 'Like `POST /v1/runs`. `params` replace those of the agent, for this run.',
        headers: z.object(idempotencyKey),
        body: json(agentRunRequest, { input: exampleRunRequest.input }),
        answer,
        errors: [...ERRORS_OF_REQUESTS, 'agent_not_found'],
      },
      async ({ params: { agent_name: name }, headers, body, caller, rateLimitError, response }) =>
        create({
          body,
          identity: { name, body },
          readAgent: () => registeredAgent(catalog, name, body),
          key: headers['Idempotency-Key'],
          caller,
          rateLimitError,
          response,
        }),
    ),
    route(
      'get',
      '/v1/runs/:run_id',
      {
        id: 'getRun',
        tag: 'Runs',
        summary: 'A run, now or when it ends or pauses',
        query: waitQuery,
        answer: run,
        errors: ['run_not_found'],
      },
      async ({ params, query, caller, response }) => {
        const found = await authorizeRun(catalog, params.run_id, caller, 'read');
        const gone = new AbortController();
        response.once('close', () => gone.abort());
        return follow(found, { waitMs: query.wait_seconds * 1000, signal: gone.signal });
      },
    ),
    route(
      'get',
      '/v1/runs/:run_id/stream',
      {
        id: 'streamRun',
        tag: 'Runs',
        summary: 'The stream of a run from a cursor on',
        query: z.object(afterSequenceNumber),
        headers: z.object(lastEventId),
        answer: { written: { 'text/event-stream': events } },
        noContent: 'the run has ended, and the cursor is at its end',
        errors: ['invalid_cursor', 'run_not_found', 'too_many_streams'],
      },
      async ({ params, query, headers, caller, request, response }) => {
        const found = await authorizeRun(catalog, params.run_id, caller, 'read');
        const cursor = cursorOf(undefined, headers['Last-Event-ID']?.trim() || query.after_sequence_number);
        if (request.method === 'HEAD') return void response.type('text/event-stream').end();
        streamLimits.admit(caller, response);
        nameRun(response, found);
        await stream(found, { cursor, stream: new EventStream(response, metrics) });
      },
    ),
    route(
      'post',
      '/v1/runs/:run_id/cancel',
      {
        id: 'cancelRun',
        tag: 'Runs',
        summary: 'Cancel a run',
        description: 'Without effect on a run that has ended. The response may still say `running`.',
        body: json(z.object({}).optional(), {}),
        answer: run,
        errors: ['forbidden', 'run_not_found'],
      },
      async ({ params, caller }) => {
        const found = await authorizeRun(catalog, params.run_id, caller, 'cancel');
        await cancelTurns(context, found.session, { turnId: found.turnId });
        return follow(found, { waitMs: 0 });
      },
    ),
    route(
      'delete',
      '/v1/runs/:run_id',
      {
        id: 'deleteRun',
        tag: 'Runs',
        summary: 'Delete a run with its log, its files and its input',
        description: 'A running one is cancelled.',
        errors: ['forbidden', 'run_not_found'],
      },
      async ({ params, caller }) => {
        const { session } = await authorizeRun(catalog, params.run_id, caller, 'delete');
        await deleteSession(context, session);
      },
    ),
  ];

  async function create({ body, identity, readAgent, key, caller, rateLimitError, response }: RunCall): Promise<void> {
    const isStream = body.stream === true;
    if (isStream) streamLimits.admit(caller, response);
    const claimed = await claimRun(context, { caller, key, bodyHash: hashOf(identity) });
    // Subscribes before the run starts, so that its first deltas are not missed.
    const lease = context.tails.lease(claimed.turnId);
    try {
      const read = async (): Promise<NewRun> => {
        const { conversation, repaired, lastItemId: itemId } = readItems(body.input);
        return {
          agent: await readAgent(),
          conversation: await withKnownResults(context, { caller, conversation, itemId }),
          repaired,
          metadata: body.metadata ?? {},
        };
      };
      const started = await startRun(context, claimed, { read, rateLimitError });
      await started?.indexed;
      const found = await authorizeRun(catalog, claimed.runId, caller, 'read');
      const created = started?.created;
      nameRun(response, found);
      if (isStream) {
        await stream(found, { cursor: BEGINNING, stream: new EventStream(response, metrics), lease, created });
      } else {
        const waitMs = (body.wait_seconds ?? DEFAULT_WAIT_SECONDS) * 1000;
        await answerWhenSettled(response, (signal) => follow(found, { waitMs, signal, created }));
      }
    } finally {
      lease.release();
    }
  }

  /** @throws ApiError or EngineError, before anything is sent */
  async function stream(
    { runId, session, turnId, sessionId }: Run,
    options: Pick<Parameters<typeof streamRun>[0], 'cursor' | 'stream' | 'lease' | 'created'>,
  ): Promise<void> {
    const limits = limitsOf(await catalog.agents.spec(session.spec_hash));
    const streaming = streamRun({ context, run: runHeader(session), limits, turnId, sessionId, ...options });
    if ((await unlessNotFound(streaming.then(() => true))) === undefined) throw runNotFound(runId);
  }

  async function follow(found: Run, options: FollowOptions): Promise<RunResource> {
    const output = await unlessNotFound(followRun(context, found, options));
    if (!output) throw runNotFound(found.runId);
    return output.run(runHeader(found.session));
  }
}

function nameRun(response: Response, { runId }: Run): void {
  response.set({ 'x-run-id': runId, 'content-location': `/v1/runs/${runId}` });
}
