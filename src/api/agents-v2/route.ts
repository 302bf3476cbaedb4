import { z } from 'zod';
import { ERRORS } from '../http/errors.ts';
import { fileId, webhookId } from '../http/path-parameters.ts';
import { routesOfFace, type FaceFacts } from '../http/route.ts';
import { AGENTS_V2_ERRORS } from './errors.ts';

export const DOCUMENT_PATH = '/api/v2/openapi.json';

/** The links to shared sessions. */
export const SHARE = '/share/api/v1/trajectories';

/** The MCP endpoint, whose own errors are JSON-RPC's. */
export const MCP_PATH = '/mcp';

export const FACTS = {
  prefixes: { '/api/v2': 'key', [MCP_PATH]: 'key', [SHARE]: 'all' },
  publicPaths: [DOCUMENT_PATH],
  sharedPaths: [
    '/api/v2/sessions/:id',
    '/api/v2/sessions/:id/status',
    '/api/v2/sessions/:id/changes',
    '/api/v2/sessions/:id/events',
    '/api/v2/sessions/:id/resources/:bucket/*key',
    '/api/v2/sessions/:id/files/:file_id',
  ],
  tags: {
    'Agent sessions': 'runs of an agent: a task, and everything that follows from it',
    'Agent webhooks': 'notifications of changed sessions; only for admins',
    Schedules: 'times at which sessions are created',
    'Agent catalog': 'the agents that sessions may name, and the skills and environments of which they are made',
  },
  parameters: {
    file_id: fileId,
    webhook_id: webhookId,
    schedule_id: z.string().meta({
      description: 'id of a schedule',
      example: '4b0f8a4e-5f0c-4c38-9d2b-7a3f3c1f2d55',
      format: 'uuid',
    }),
    bucket: z.string().meta({ description: 'kind of the resource, from the URL in an event', example: 'files' }),
    key: z.string().meta({
      description: 'name of the resource, from the URL in an event',
      example: '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',
    }),
    event_index: z.string().meta({
      description: 'position of an event in the session, from 0',
      example: '4',
      override: { type: 'integer', example: 4, minimum: 0, maximum: 999_999_999 },
    }),
    agent: z.string().meta({ description: 'name of a registered agent; it may contain a /', example: 'order-desk' }),
    revision: z.string().meta({ description: 'number of a revision of the agent, from 1', example: '3' }),
    skill: z.string().meta({ description: 'name of a skill; it may contain a /', example: 'acme/refunds' }),
    environment: z.string().meta({ description: 'id of an environment; it may contain a /', example: 'shop' }),
    id: z
      .string()
      .meta({ description: 'id of a session', example: '0199a8d4-9d1c-7e32-8f5d-2f6a3c1b9e04', format: 'uuid' }),
  },
  notFound: {
    id: ERRORS.session_not_found,
    file_id: ERRORS.file_not_found,
    key: ERRORS.file_not_found,
    webhook_id: ERRORS.webhook_not_found,
    agent: ERRORS.agent_not_found,
    event_index: AGENTS_V2_ERRORS.event_not_found,
    schedule_id: AGENTS_V2_ERRORS.schedule_not_found,
    skill: AGENTS_V2_ERRORS.skill_not_found,
    environment: AGENTS_V2_ERRORS.environment_not_found,
  },
  errorKinds: AGENTS_V2_ERRORS,
} as const satisfies FaceFacts;

export const routesOf = routesOfFace(FACTS);
