import type { Face } from '../http/face.ts';
import { runErrors } from './errors.ts';
import { FACTS } from './route.ts';
import { runRoutes } from './routes.ts';

/** The run API. */
export const RUNS = {
  ...FACTS,
  name: 'runs',
  errors: runErrors,
  sdkPaths: ['/v1/runs'],
  isTraced: true,
  routes: runRoutes,
} as const satisfies Face;
