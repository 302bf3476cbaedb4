import type { Response } from 'express';
import { z } from 'zod';
import { readerOf } from '../../auth/rights.ts';
import { BEGINNING } from '../../core/cursor.ts';
import type { Caller } from '../../core/subject.ts';
import { hasTurn } from '../../engine/access.ts';
import { cancelTurns, deleteSession } from '../../engine/engine.ts';
import { authorizeRun, runNotFound } from '../../features/run-support/runs.ts';
import type { ApiContext } from '../http/context.ts';
import type { ApiError } from '../http/errors.ts';
import { disconnection } from '../http/disconnection.ts';
import { afterSequenceNumber, idempotencyKey, lastEventId } from '../http/headers.ts';
import { numberQuery } from '../http/number-query.ts';
import { json, type Route } from '../http/route.ts';
import { cursorOfEventSource } from '../http/turn-stream.ts';
import { turnEvents, turnEventsResponse, turnEventsQuery } from '../sessions/turn-events.ts';
import { routesOf } from './route.ts';
import { describedAgent, registeredAgent } from './agent-of-run.ts';
import { claimRun, startRun, type NewRun } from './create-run.ts';
import { exampleResumeRequest, exampleRun, exampleSentRunEvent, exampleRunRequest } from './examples.ts';
import { listRoutes } from './list-runs.ts';
import { readItems } from './read-items.ts';
import { withKnownCalls } from './known-calls.ts';
import { resumeRun } from './resume-run.ts';
import { RunResponder } from './run-responder.ts';
import {
  agentRunRequest,
  runRequest,
  type AgentRunRequest,
  type ResponseOptions,
  type RunRequest,
} from './wire/request.ts';
import { resumeRequest } from './wire/resume.ts';
import { run as runResource, runStreamEvent, sentRunEvent } from './wire/run.ts';

const route = routesOf('Runs');

/** How long `GET` may wait for the end of a run. */
const MAX_WAIT_SECONDS = 60;

/** A run that does not wait for a model or a tool ends within this time. */
const CANCEL_WAIT_MS = 1_000;

const waitQuery = z.object({
  wait_seconds: numberQuery({
    min: 0,
    max: MAX_WAIT_SECONDS,
    byDefault: 0,
    description: 'how long to wait for the end of the run, or its next pause',
  }),
});

const run = json(runResource, exampleRun);
const events = json(sentRunEvent, exampleSentRunEvent);
const schemas = { RunStreamEvent: runStreamEvent };
const responseBody = { written: { 'application/json': run, 'text/event-stream': events } };

/** The common declarations of the routes that start runs. */
const starts = {
  handlesRateLimit: true,
  largeBody: true,
  stores: true,
  requires: 'createSessions',
  headers: z.object(idempotencyKey),
  schemas,
  response: responseBody,
  errors: [
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
  ],
} as const;

interface RunCall {
  body: RunRequest | AgentRunRequest;
  /** Equal for equal requests. */
  identity: unknown;
  readAgent: () => Promise<NewRun['agent']>;
  headers: { 'Idempotency-Key'?: string | undefined };
  caller: Caller;
  rateLimitError?: ApiError | undefined;
  response: Response;
}

/** Whether the response to a request stays open, as that of a stream does. */
function keepsOpen({ stream, wait_seconds: waitSeconds }: ResponseOptions): boolean {
  return stream === true || waitSeconds !== 0;
}

/** `/v1/runs`: runs of an agent, each with a conversation that the client keeps. */
export function runRoutes(context: ApiContext): Route[] {
  const { catalog, streamLimits } = context;
  const responder = new RunResponder(context);
  return [
    ...listRoutes(context),
    route('post', '/v1/runs', {
      id: 'createRun',
      ...starts,
      summary: 'Run an agent that the request describes',
      description:
        'The response is 200 even if the run fails; the run continues if the connection breaks. It is sent when ' +
        'the run ends or pauses, or after `wait_seconds`; its headers, with the id of the run, are sent at once.',
      body: json(runRequest, exampleRunRequest),
      handler: async ({ body, ...call }) =>
        create({ ...call, body, identity: body, readAgent: () => Promise.resolve(describedAgent(body)) }),
    }),
    route('post', '/v1/agents/:agent_name/runs', {
      id: 'createRunOfAgent',
      ...starts,
      summary: 'Run a registered agent',
      description: 'Like `POST /v1/runs`. `params` replace those of the agent, for this run.',
      body: json(agentRunRequest, { input: exampleRunRequest.input }),
      handler: async ({ params: { agent_name: name }, body, ...call }) =>
        create({ ...call, body, identity: { name, body }, readAgent: () => registeredAgent(catalog, name, body) }),
    }),
    route('get', '/v1/runs/:run_id', {
      id: 'getRun',
      summary: 'A run, now or when it ends or pauses',
      query: waitQuery,
      response: run,
      handler: async ({ params, query, caller, response }) => {
        const found = await authorizeRun(catalog, params.run_id, caller, 'read');
        return responder.follow(found, { waitMs: query.wait_seconds * 1000, signal: disconnection(response) });
      },
    }),
    route('get', '/v1/runs/:run_id/stream', {
      id: 'streamRun',
      summary: 'The stream of a run from a cursor on',
      query: z.object(afterSequenceNumber),
      headers: z.object(lastEventId),
      schemas,
      response: { written: { 'text/event-stream': events } },
      noContent: 'the run has ended, and the cursor is at its end',
      handler: async ({ params, query, headers, caller, request, response }) => {
        const found = await authorizeRun(catalog, params.run_id, caller, 'read');
        const cursor = cursorOfEventSource(headers, query.after_sequence_number);
        if (request.method === 'HEAD') return void response.type('text/event-stream').end();
        streamLimits.admit(caller, response);
        await responder.stream(found, response, { cursor });
      },
    }),
    route('get', '/v1/runs/:run_id/events', {
      id: 'listRunEvents',
      summary: 'The log of a run: its model calls, its tool calls and its sub-agents',
      description: 'Has the events of a turn, in the form of the Sessions API.',
      query: turnEventsQuery,
      response: turnEventsResponse,
      handler: async ({ params, query, caller }) => {
        const { session, turnId, runId, reader } = await authorizeRun(catalog, params.run_id, caller, 'read');
        if (!(await hasTurn(context, session, turnId))) throw runNotFound(runId);
        return turnEvents(context, turnId, query, reader);
      },
    }),
    route('post', '/v1/runs/:run_id/resume', {
      id: 'resumeRun',
      largeBody: true,
      summary: 'Give a run what it waits for: results of tools, approvals, toolkits',
      description:
        'Takes any part of what the run waits for: all answers of the request are accepted, or none. The run continues ' +
        'when nothing is left. The response is that of `POST /v1/runs`, from this point on. An equal answer that is ' +
        'repeated changes nothing.',
      headers: z.object(idempotencyKey),
      body: json(resumeRequest, exampleResumeRequest),
      schemas,
      response: responseBody,
      errors: [
        'forbidden',
        'not_an_approver',
        'run_ended',
        'call_not_pending',
        'call_already_answered',
        'call_answered_twice',
        'duplicate_tool_name',
        'unsupported_part',
        'invalid_arguments',
        'edit_not_allowed',
        'remember_not_allowed',
        'feature_not_available',
        'content_too_large',
        'idempotency_key_reused',
      ],
      handler: async ({ params, headers, body, caller, response }) => {
        const found = await authorizeRun(catalog, params.run_id, caller, 'read');
        if (keepsOpen(body)) streamLimits.admit(caller, response);
        const cursor = await resumeRun(context, { run: found, body, key: headers['Idempotency-Key'], caller });
        await responder.respond(found, body, response, { cursor });
      },
    }),
    route('post', '/v1/runs/:run_id/cancel', {
      id: 'cancelRun',
      summary: 'Cancel a run',
      description: 'Without effect on a run that has ended. The response may still say `running`.',
      response: run,
      errors: ['forbidden'],
      handler: async ({ params, caller }) => {
        const found = await authorizeRun(catalog, params.run_id, caller, 'cancel');
        await cancelTurns(context, found.session, { turnId: found.turnId });
        // A run that was paused no longer waits for its client.
        return responder.follow(found, { waitMs: CANCEL_WAIT_MS, ignoresPauses: true });
      },
    }),
    route('delete', '/v1/runs/:run_id', {
      id: 'deleteRun',
      summary: 'Delete a run with its log, its files and its input',
      description: 'A running one is cancelled.',
      errors: ['forbidden'],
      handler: async ({ params, caller }) => {
        const { session } = await authorizeRun(catalog, params.run_id, caller, 'delete');
        await deleteSession(context, session);
      },
    }),
  ];

  async function create({ body, identity, readAgent, headers, caller, rateLimitError, response }: RunCall) {
    if (keepsOpen(body)) streamLimits.admit(caller, response);
    const claimed = await claimRun(context, { caller, key: headers['Idempotency-Key'], body: identity });
    // Subscribes before the run starts, so that its first deltas are not missed.
    const lease = context.tails.lease(claimed.turnId);
    try {
      const read = async (): Promise<NewRun> => {
        const agent = await readAgent();
        const accepted = { ...context.agentCheck.acceptedInput(agent.spec), missing: agent.missing };
        const { conversation, repaired, lastItemId: itemId } = readItems(body.input, accepted);
        return {
          agent,
          conversation: await withKnownCalls(context, { caller, agent, conversation, itemId }),
          repaired,
          metadata: body.metadata ?? {},
        };
      };
      const started = await startRun(context, claimed, { read, rateLimitError });
      await started?.indexed;
      const found = started
        ? { ...claimed, session: started.session, reader: readerOf(caller, started.session) }
        : await authorizeRun(catalog, claimed.runId, caller, 'read');
      const created = started?.created;
      await responder.respond(found, body, response, { cursor: BEGINNING, lease, created });
    } finally {
      lease.release();
    }
  }
}
