import { signedHeaders } from '../../features/webhooks/signature.ts';
import { standardErrors } from '../http/errors.ts';
import type { Face } from '../http/face.ts';
import { actionRoutes } from './actions.ts';
import { agentRoutes } from './agents.ts';
import { codeToolRoutes } from './code-tools.ts';
import { draftSessionRoutes } from './draft-sessions.ts';
import { eventRoutes } from './events.ts';
import { fileRoutes } from './files.ts';
import { permissionRoutes } from './permissions.ts';
import { FACTS } from './route.ts';
import { savedToolRoutes } from './saved-tools.ts';
import { sandboxRoutes } from './sandboxes.ts';
import { sessionListRoutes } from './session-lists.ts';
import { sessionStreamRoutes } from './session-stream.ts';
import { sessionRoutes } from './sessions.ts';
import { signInRoutes } from './sign-ins.ts';
import { steeringRoutes } from './steering.ts';
import { timelineRoutes } from './timeline.ts';
import { turnRoutes } from './turns.ts';
import { webhookMessages } from './webhook-messages.ts';
import { webhookRoutes } from './webhooks.ts';

/** The Sessions API. */
export const SESSIONS = {
  ...FACTS,
  name: 'sessions',
  errors: standardErrors,
  sdkPaths: ['/v1/agents', '/v1/x/agents'],
  isTraced: true,
  webhooks: (services) => ({ messageOf: webhookMessages(services), headersOf: signedHeaders }),
  routes: (context) => [
    ...sessionRoutes(context),
    ...sessionListRoutes(context),
    ...turnRoutes(context),
    ...steeringRoutes(context),
    ...eventRoutes(context),
    ...timelineRoutes(context),
    ...sessionStreamRoutes(context),
    ...fileRoutes(context),
    ...permissionRoutes(context),
    ...sandboxRoutes(context),
    ...codeToolRoutes(context),
    ...savedToolRoutes(context),
    ...draftSessionRoutes(context),
    ...signInRoutes(context),
    ...actionRoutes(context),
    ...webhookRoutes(context),
    ...agentRoutes(context),
  ],
} as const satisfies Face;
