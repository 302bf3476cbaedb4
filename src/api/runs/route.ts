import { z } from 'zod';
import { ERRORS } from '../http/errors.ts';
import { agentName } from '../http/path-parameters.ts';
import { routesOfFace, type FaceFacts } from '../http/route.ts';
import { RUN_ERRORS } from './errors.ts';

export const FACTS = {
  prefixes: { '/v1/runs': 'key', '/v1/agents/:agent_name/runs': 'key' },
  tags: { Runs: 'runs of an agent with a conversation that the client keeps' },
  parameters: {
    agent_name: agentName,
    run_id: z.string().meta({ description: 'id of a run', example: 'run_01kac6f1zy5c3n8s7k4b2g9d6w' }),
  },
  notFound: { run_id: ERRORS.run_not_found, agent_name: ERRORS.agent_not_found },
  errorKinds: RUN_ERRORS,
} as const satisfies FaceFacts;

export const routesOf = routesOfFace(FACTS);
