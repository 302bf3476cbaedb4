import type { ApiContext } from '../http/context.ts';
import { withDocument } from '../http/openapi.ts';
import type { Route } from '../http/route.ts';
import { agentRoutes } from './agents.ts';
import { changesRoutes } from './changes.ts';
import { environmentRoutes } from './environments.ts';
import { eventRoutes } from './events.ts';
import { AGENTS_V2 } from './face.ts';
import { feedbackRoutes } from './feedback.ts';
import { fileRoutes } from './files.ts';
import { quotaRoutes } from './quota.ts';
import { sessionListRoutes } from './list-sessions.ts';
import { SessionReader } from './read-session.ts';
import { scheduleActionRoutes } from './schedule-actions.ts';
import { scheduleRoutes } from './schedules.ts';
import { sessionRoutes } from './sessions.ts';
import { sharingRoutes } from './sharing.ts';
import { skillRoutes } from './skills.ts';
import { steeringRoutes } from './steering.ts';
import { webhookRoutes } from './webhooks.ts';

/** The Agents API v2: `/api/v2`. */
export function agentsV2Routes(context: ApiContext, reader = new SessionReader(context)): Route[] {
  const routes = [
    // Before the paths with an id in the same place.
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
    ...scheduleActionRoutes(context),
    ...agentRoutes(context),
    ...skillRoutes(context),
    ...environmentRoutes(context),
  ];
  return withDocument(routes, AGENTS_V2, { hasKeys: () => !context.keyring.isKeyless });
}
