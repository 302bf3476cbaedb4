import type { CallToolResult, ServerContext } from '@modelcontextprotocol/server';
import { McpServer } from '@modelcontextprotocol/server';
import { z } from 'zod';
import packageJson from '../../../../package.json' with { type: 'json' };
import type { Caller } from '../../../core/subject.ts';
import { authorizeSession } from '../../../engine/access.ts';
import { EngineError } from '../../../engine/errors.ts';
import { hashOf } from '../../../lib/hash.ts';
import { namingUnknownKeys } from '../../../lib/unknown-keys.ts';
import type { ApiContext } from '../../http/context.ts';
import { toApiError } from '../../http/errors.ts';
import { authorize } from '../../http/route.ts';
import { authorizeOwner } from '../access.ts';
import { cancelIfOpen } from '../cancel-session.ts';
import { createSession } from '../create-session.ts';
import type { SessionReader } from '../read-session.ts';
import { sendMessages } from '../send-messages.ts';
import { fromUuid } from '../session-ids.ts';
import { shareLink, shareSession } from '../sharing.ts';
import { agentReference } from '../wire/names.ts';
import { sessionRequest } from '../wire/session.ts';
import { listAgents, listedAgents } from './list-agents.ts';
import { sessionResult, toSessionResult } from './session-result.ts';
import { MAX_WAIT_SECONDS, waitForSession } from './wait-for-session.ts';

/** The sender of one MCP request. */
export interface McpCaller {
  caller: Caller;
  /** This server's name in the request. */
  host: string | undefined;
}

/** The name of a tool call, the same for each of its attempts; Everturn sends it with every call. */
const OPERATION_ID = 'io.everturn/operation-id';

const INSTRUCTIONS =
  'Runs agents as sessions, which work until they have an answer, also if the client disconnects or cancels its call. ' +
  `run_agent and wait_for_session wait for at most ${MAX_WAIT_SECONDS} s: then call wait_for_session until the ` +
  'session has an answer.';

const sessionId = z.string().max(64).describe('from run_agent');
const message = z.string().min(1).max(1_000_000);
const { max_steps, max_time_s, idle_timeout_s, group_id } = sessionRequest.shape;
const key = z
  .string()
  .trim()
  .min(1)
  .max(255)
  .optional()
  .describe('names this call: a repetition with the same key and arguments has no further effect');
const wait = z
  .number()
  .min(0)
  .max(MAX_WAIT_SECONDS)
  .default(MAX_WAIT_SECONDS)
  .describe('how long to wait for its answer, in seconds');

/** Rejects unknown keys: the client would expect an effect that they do not have. */
function strict<S extends z.core.$ZodLooseShape>(shape: S) {
  return z.strictObject(shape, { error: namingUnknownKeys });
}

/** The arguments of the tools. */
export const toolArguments = {
  run_agent: strict({
    agent: agentReference.describe('name of a registered agent: see list_agents'),
    message: message.describe('the task'),
    max_steps,
    max_time_s,
    idle_timeout_s,
    group_id,
    wait_seconds: wait,
    idempotency_key: key,
  }),
  wait_for_session: strict({ session_id: sessionId, wait_seconds: wait }),
  list_agents: strict({
    after: z.string().max(256).optional().describe('the name after which to continue'),
    limit: z.int().min(1).max(100).default(50),
  }),
  send_message: strict({ session_id: sessionId, message, idempotency_key: key }),
  cancel_session: strict({ session_id: sessionId }),
  share_session: strict({ session_id: sessionId }),
};

/** A server for one request: its tools act with the rights of the caller. */
export function createMcpServer(context: ApiContext, reader: SessionReader, { caller, host }: McpCaller): McpServer {
  const { catalog, storageQuota, log } = context;
  const storageRefusal = async (text: string) =>
    (await storageQuota.admit(caller.subject.subjectId, Buffer.byteLength(text))).refusal;
  const server = new McpServer(
    { name: 'everturn', version: packageJson.version },
    { instructions: INSTRUCTIONS, capabilities: { tools: { listChanged: false } } },
  );

  /** The result of a tool. An error becomes a result that contains what the caller can do about it. */
  async function respond<T extends object>(work: () => Promise<T>): Promise<CallToolResult> {
    try {
      const structuredContent = { ...(await work()) };
      return { structuredContent, content: [{ type: 'text', text: JSON.stringify(structuredContent) }] };
    } catch (error) {
      const { kind, message: text, cause } = toApiError(error);
      if (kind.status >= 500) log.error({ err: cause ?? error }, text);
      return { isError: true, content: [{ type: 'text', text: `${kind.code}: ${text}` }] };
    }
  }

  async function waitFor(id: string, seconds: number, { mcpReq: { signal } }: ServerContext) {
    return toSessionResult(await waitForSession(context, reader, { sessionId: id, caller, seconds, signal }));
  }

  server.registerTool(
    'run_agent',
    {
      title: 'Run an agent',
      description: 'Starts a session in which an agent works on a task, and waits for its answer.',
      inputSchema: toolArguments.run_agent,
      outputSchema: sessionResult,
      annotations: { readOnlyHint: false, idempotentHint: false },
    },
    ({ message: task, wait_seconds: seconds, idempotency_key: given, ...options }, call) =>
      respond(async () => {
        authorize(caller, 'createSessions');
        const request = sessionRequest.parse({ ...options, messages: task });
        const id = await createSession(context, {
          request,
          caller,
          key: keyOf('run_agent', given, call),
          rateLimitError: await storageRefusal(task),
          host,
        });
        return waitFor(id, seconds, call);
      }),
  );

  server.registerTool(
    'wait_for_session',
    {
      title: 'Wait for a session',
      description:
        'Waits until a session has an answer, has failed, or waits for its client or a person; then, or at the end of ' +
        'the time, returns its state.',
      inputSchema: toolArguments.wait_for_session,
      outputSchema: sessionResult,
      annotations: { readOnlyHint: true },
    },
    ({ session_id: uuid, wait_seconds: seconds }, call) => respond(async () => waitFor(fromUuid(uuid), seconds, call)),
  );

  server.registerTool(
    'list_agents',
    {
      title: 'List agents',
      description: 'The agents that run_agent can run, by name.',
      inputSchema: toolArguments.list_agents,
      outputSchema: listedAgents,
      annotations: { readOnlyHint: true },
    },
    (page) => respond(() => listAgents(catalog, page)),
  );

  server.registerTool(
    'send_message',
    {
      title: 'Send a message to a session',
      description:
        'Its agent reads the message with its next step. A session that has ended starts again, with all that was said. ' +
        'Returns its state at once: call wait_for_session for the answer.',
      inputSchema: toolArguments.send_message,
      outputSchema: sessionResult,
      annotations: { readOnlyHint: false, idempotentHint: false },
    },
    ({ session_id: uuid, message: text, idempotency_key: given }, call) =>
      respond(async () => {
        const session = await authorizeSession(catalog, fromUuid(uuid), caller, 'send');
        await sendMessages(context, {
          session,
          caller,
          messages: [{ type: 'user_message', message: text, caller_id: 'user' }],
          key: keyOf('send_message', given, call),
          rateLimitError: await storageRefusal(text),
          host,
          // MCP clients do not repeat requests by themselves.
          respond: () => Promise.resolve(true),
        });
        return waitFor(session.id, 0, call);
      }),
  );

  server.registerTool(
    'cancel_session',
    {
      title: 'Cancel a session',
      description: 'Ends what a session is doing. Without effect on one that has ended, or does not exist.',
      inputSchema: toolArguments.cancel_session,
      outputSchema: z.object({ session_id: z.string(), was_found: z.boolean() }),
      annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true },
    },
    ({ session_id: uuid }) =>
      respond(async () => {
        const session = await authorizeSession(catalog, fromUuid(uuid), caller, 'cancel').catch((error: unknown) => {
          if (error instanceof EngineError && error.code === 'session_not_found') return undefined;
          throw error;
        });
        if (session) await cancelIfOpen(context, reader, session);
        return { session_id: uuid, was_found: session !== undefined };
      }),
  );

  server.registerTool(
    'share_session',
    {
      title: 'Share a session',
      description: 'Makes a session of the caller readable for everyone who has its address.',
      inputSchema: toolArguments.share_session,
      outputSchema: shareLink,
      annotations: { readOnlyHint: false, idempotentHint: true },
    },
    ({ session_id: uuid }) =>
      respond(async () => ({ share_url: await shareSession(context, await authorizeOwner(catalog, uuid, caller)) })),
  );

  return server;
}

/** The key by which a repeated call has no second effect; undefined if the client has no way to repeat the call. */
function keyOf(tool: string, given: string | undefined, { mcpReq }: ServerContext): string | undefined {
  const operation = mcpReq._meta?.[OPERATION_ID];
  if (given === undefined && typeof operation !== 'string') return undefined;
  return `mcp:${hashOf(given === undefined ? { tool, operation } : { tool, given })}`;
}
