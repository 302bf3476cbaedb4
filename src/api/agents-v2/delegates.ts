import type { Catalog } from '../../catalog/catalog.ts';
import type { AgentSpec, Delegate } from '../../spec/agent-spec.ts';
import { ApiError } from '../http/errors.ts';
import { forRequest, toSpec, type SpecOptions } from './agent-to-spec.ts';
import { checkEnvironments } from './environment-servers.ts';
import type { FullAgent } from './wire/agent.ts';
import type { SessionRequest } from './wire/session.ts';

/** A sub-agent as the engine runs it, with its own. Each of its tasks is a session. */
export interface DelegateTree {
  name: string;
  description: string;
  spec: AgentSpec;
  delegates: DelegateTree[];
}

interface TreeOptions extends SpecOptions {
  timezone: SessionRequest['timezone'];
  /** Checks that this server can run a spec. @throws ApiError */
  check: (spec: AgentSpec, placeOf: SpecOptions['placeOf']) => Promise<void>;
}

/**
 * The sub-agents of an agent, whose definitions are complete. The caps of the request are for its own agent: sub-agents
 * are not limited by them. @throws ApiError that names the place
 */
export async function delegateTrees({ subagents }: FullAgent, options: TreeOptions): Promise<DelegateTree[]> {
  const trees: DelegateTree[] = [];
  for (const [i, agent] of (subagents ?? []).entries()) {
    const placeOf = (inner: string) => options.placeOf(inner === '' ? `subagents.${i}` : `subagents.${i}.${inner}`);
    const { name, description } = agent;
    if (trees.some((other) => other.name === name)) {
      const param = placeOf('name');
      throw new ApiError('invalid_request', `${param}: two sub-agents are named ${name}`, { param });
    }
    checkEnvironments(agent, options.registry, placeOf);
    const spec = forRequest(toSpec(agent, { ...options, placeOf }), { timezone: options.timezone });
    await options.check(spec, placeOf);
    trees.push({ name, description, spec, delegates: await delegateTrees(agent, { ...options, placeOf }) });
  }
  return trees;
}

/** Stores the specs of an agent and its sub-agents, and returns the hash of the agent's. */
export async function storeSpec(
  catalog: Pick<Catalog, 'agents'>,
  { spec, delegates }: Pick<DelegateTree, 'spec' | 'delegates'>,
  now: string,
): Promise<string> {
  const stored: Delegate[] = [];
  for (const tree of delegates) {
    stored.push({ name: tree.name, description: tree.description, spec: await storeSpec(catalog, tree, now) });
  }
  return catalog.agents.putSpec({ ...spec, ...(stored.length > 0 && { delegates: stored }) }, now);
}
