import type { Face } from '../http/face.ts';
import { agentRoutes } from './agents.ts';
import { changesRoutes } from './changes.ts';
import { environmentRoutes } from './environments.ts';
import { agentsV2Errors } from './errors.ts';
import { eventRoutes } from './events.ts';
import { feedbackRoutes } from './feedback.ts';
import { fileRoutes } from './files.ts';
import { sessionListRoutes } from './list-sessions.ts';
import { mcpRoute } from './mcp/endpoint.ts';
import { quotaRoutes } from './quota.ts';
import { SessionReader } from './read-session.ts';
import { DOCUMENT_PATH, FACTS } from './route.ts';
import { scheduleRoutes } from './schedules.ts';
import { sessionRoutes } from './sessions.ts';
import { sharingRoutes } from './sharing.ts';
import { skillRoutes } from './skills.ts';
import { steeringRoutes } from './steering.ts';
import { statusFormat } from './webhook-messages.ts';
import { webhookRoutes } from './webhooks.ts';

/** The Agents API v2. */
export const AGENTS_V2 = {
  ...FACTS,
  name: 'agents-v2',
  errors: agentsV2Errors,
  document: {
    title: 'Everturn: Agents API v2',
    description: 'Runs of agents as sessions, followed by long polling.',
    path: DOCUMENT_PATH,
  },
  sharedReads: new RegExp(
    `^(?:${FACTS.sharedPaths.map((path) => path.replace(':id', '[\\da-fA-F-]{32,36}').replaceAll(/:\w+/g, '[^/]+').replace(/\*\w+/, '.+')).join('|')})/?$`,
  ),
  webhooks: statusFormat,
  routes: (context) => {
    const reader = new SessionReader(context);
    return [
      // Before the routes with an id in the same segment.
      ...quotaRoutes(context),
      ...sessionListRoutes(context),
      ...sessionRoutes(context, reader),
      ...changesRoutes(context, reader),
      ...eventRoutes(context, reader),
      ...steeringRoutes(context, reader),
      ...sharingRoutes(context),
      ...feedbackRoutes(context, reader),
      ...fileRoutes(context),
      ...webhookRoutes(context),
      ...scheduleRoutes(context),
      ...agentRoutes(context),
      ...skillRoutes(context),
      ...environmentRoutes(context),
      mcpRoute(context, reader),
    ];
  },
} as const satisfies Face;
