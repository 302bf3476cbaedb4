import { z } from 'zod';
import { OPERATIONS_TAG } from '../http/openapi.ts';
import { routesOfFace, type FaceFacts } from '../http/route.ts';

export const FACTS = {
  prefixes: {
    '/healthz': 'all',
    '/readyz': 'all',
    '/metrics': 'key',
    '/v1/agents/mcp/servers': 'key',
    '/v1/kernels': 'key',
    '/openapi.json': 'address',
    '/docs': 'address',
  },
  tags: OPERATIONS_TAG,
  parameters: { asset: z.string().meta({ description: 'name of the file', example: 'start.js' }) },
} as const satisfies FaceFacts;

export const routesOf = routesOfFace(FACTS);
