import { standardErrors } from '../http/errors.ts';
import type { Face } from '../http/face.ts';
import { docsRoutes } from './docs.ts';
import { healthRoutes } from './health.ts';
import { kernelRoutes } from './kernels.ts';
import { mcpServerRoutes } from './mcp-servers.ts';
import { metricsRoutes } from './metrics.ts';
import { FACTS } from './route.ts';

/** The routes for operators, and the document of all faces without their own. */
export const OPERATIONS = {
  ...FACTS,
  name: 'operations',
  errors: standardErrors,
  document: {
    title: 'Everturn',
    description: 'A server that runs AI agent conversations.',
    path: '/openapi.json',
  },
  routes: (context) => [
    ...mcpServerRoutes(context),
    ...kernelRoutes(context),
    // Without keys only this machine is admitted, so that reasons may be shown.
    ...healthRoutes({ ...context, saysWhy: () => context.keyring.isKeyless }),
    ...docsRoutes(),
    ...metricsRoutes(context),
  ],
} as const satisfies Face;
