import { answerCalls } from '../../engine/answer-calls.ts';
import { authorizeSession } from '../../engine/access.ts';
import { controlTurn } from '../../engine/control-turn.ts';
import type { ApiContext } from '../http/context.ts';
import { ApiError } from '../http/errors.ts';
import { json, type Route } from '../http/route.ts';
import { sendWhole } from '../http/send-whole.ts';
import { routesOf } from './route.ts';
import type { SessionReader } from './read-session.ts';
import { sendMessages } from './send-messages.ts';
import { fromUuid } from './session-ids.ts';
import { resultsFor } from './tool-results.ts';
import { messagesBody, toolResultsBody } from './wire/messages.ts';

const route = routesOf('Agent sessions');

const CONTROLS = [
  { name: 'pause', id: 'pauseSession', summary: 'Pause a session after what it is doing' },
  { name: 'resume', id: 'resumeSession', summary: 'Resume a paused session' },
  { name: 'force_answer', id: 'forceAnswer', summary: 'Have the agent answer with its next step' },
] as const;

/** Messages, results and commands for a session. */
export function steeringRoutes(context: ApiContext, reader: SessionReader): Route[] {
  const { catalog } = context;
  return [
    route('post', '/api/v2/sessions/:id/messages', {
      id: 'sendSessionMessages',
      handlesRateLimit: true,
      largeBody: true,
      stores: true,
      summary: 'Send messages to a session',
      description:
        'The agent reads them with its next step; a session in the queue begins with them. A paused session resumes; one that waits for messages, or has ' +
        'ended, starts again with all of its history.',
      body: json(messagesBody, { type: 'user_message', message: 'Only those of this week.', caller_id: 'user' }),
      status: 202,
      errors: [
        'forbidden',
        'session_closed',
        'actions_pending',
        'too_many_messages',
        'invalid_data_uri',
        'file_unavailable',
        'content_too_large',
        'invalid_agent',
        'feature_not_available',
        'too_many_turns',
        'too_many_sessions',
        'budget_exceeded',
      ],
      handler: async ({ params, body, caller, rateLimitError, request, response }) => {
        const session = await authorizeSession(catalog, fromUuid(params.id), caller, 'send');
        const messages = body.type === 'batch' ? body.messages : [body];
        await sendMessages(context, {
          session,
          caller,
          messages: messages.map((message) => ({ ...message, type: 'user_message' })),
          key: undefined,
          rateLimitError,
          host: request.get('host'),
          respond: () => sendWhole(response, () => response.status(202).end()),
        });
      },
    }),
    route('post', '/api/v2/sessions/:id/tool_results', {
      id: 'sendToolResults',
      largeBody: true,
      summary: 'Send the results of tools that the client runs',
      description: 'Of some or of all calls that wait. A repetition changes nothing.',
      body: json(toolResultsBody, {
        kind: 'tool_result',
        tool_req: { tool_name: 'lookup', args: { id: 17 }, id: 'call_1' },
        result: { late: true },
      }),
      status: 202,
      errors: ['forbidden', 'nothing_pending', 'already_decided', 'content_too_large'],
      handler: async ({ params, body, caller }) => {
        const session = await authorizeSession(catalog, fromUuid(params.id), caller, 'send');
        const { view } = await reader.read(session);
        let answers = resultsFor(body, view.turn?.forClient ?? []);
        if (answers.length < ('results' in body ? body.results.length : 1)) {
          // Another process may have shown the client a call that this process has not read yet.
          await view.refreshFromLog();
          answers = resultsFor(body, view.turn?.forClient ?? []);
        }
        if (answers.length === 0) {
          throw new ApiError('nothing_pending', 'no call of a tool waits for these results: it has ended, or has one');
        }
        await answerCalls(context, { session, caller, answers });
      },
    }),
    ...CONTROLS.map(({ name, id, summary }) =>
      route('post', `/api/v2/sessions/:id/${name}`, {
        id,
        summary,
        status: 202,
        errors: ['forbidden', 'nothing_running', 'budget_exceeded'],
        handler: async ({ params, caller }) => {
          const session = await authorizeSession(catalog, fromUuid(params.id), caller, 'cancel');
          await controlTurn(context, { session, caller, type: name });
        },
      }),
    ),
  ];
}
