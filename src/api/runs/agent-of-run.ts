import type { Catalog } from '../../features/catalog.ts';
import { isGiven } from '../../lib/is-given.ts';
import { agentNotFound, ApiError } from '../http/errors.ts';
import { toSpec, withParams } from './agent-to-spec.ts';
import type { NewRun } from './create-run.ts';
import type { AgentRunRequest, RunRequest } from './wire/request.ts';

const MAX_CONTEXT_BYTES = 256 * 1024;

/** The agent that a request describes. @throws ApiError */
export function describedAgent({ agent, context }: RunRequest): NewRun['agent'] {
  checkContext(context);
  const name = agent.name ?? 'agent';
  return { name, version: null, isRegistered: false, hasNewModel: true, ...toSpec(agent, context ?? {}) };
}

/**
 * A registered agent. It runs with its own rights, or with those of the caller if the request changes it.
 * @throws ApiError
 */
export async function registeredAgent(
  { agents }: Pick<Catalog, 'agents'>,
  name: string,
  { params, context }: AgentRunRequest,
): Promise<NewRun['agent']> {
  checkContext(context);
  const agent = await agents.get(name);
  if (!agent) throw agentNotFound(name);
  const isChanged = Object.values(params ?? {}).some(isGiven);
  const changed = withParams(agent.spec, params ?? {}, context ?? {});
  return { name, version: agent.version, isRegistered: !isChanged, hasNewModel: isGiven(params?.model), ...changed };
}

function checkContext(context: unknown): void {
  if (Buffer.byteLength(JSON.stringify(context ?? {})) <= MAX_CONTEXT_BYTES) return;
  throw new ApiError('body_too_large', 'context must have at most 256 KiB', { param: 'context' });
}
