import type { Catalog } from '../../features/catalog.ts';
import type { AgentSpec, Delegate } from '../../spec/agent-spec.ts';
import { forRequest, toSpec, type SpecOptions } from './agent-to-spec.ts';
import { invalidField, pathsIn, type PathInRequest } from './errors.ts';
import type { AgentExpansion } from './expand-agent.ts';
import type { FullAgent } from './wire/agent.ts';
import type { SessionRequest } from './wire/session.ts';

/** A sub-agent as the engine runs it, with its own sub-agents. Each of its tasks is a session. */
export interface DelegateTree {
  name: string;
  description: string;
  spec: AgentSpec;
  delegates: DelegateTree[];
}

interface TreeOptions extends SpecOptions {
  timezone?: SessionRequest['timezone'];
  /** The specs of sub-agents whose definitions are for display only: see `AgentExpansion`. */
  specs: AgentExpansion['specs'];
  /** Checks that this server can run a sub-agent by its spec. @throws ApiError */
  check: (agent: FullAgent, spec: AgentSpec, pathOf: PathInRequest) => Promise<void>;
}

/**
 * The sub-agents of an agent, whose definitions are complete. The limits of the request apply to its own agent, not to
 * sub-agents. @throws ApiError that names the path
 */
export async function delegateTrees({ subagents }: FullAgent, options: TreeOptions): Promise<DelegateTree[]> {
  const trees: DelegateTree[] = [];
  for (const [i, agent] of (subagents ?? []).entries()) {
    const pathOf = pathsIn(options.pathOf, `subagents.${i}`);
    const { name, description } = agent;
    if (trees.some((other) => other.name === name)) {
      throw invalidField(pathOf('name'), `two sub-agents are named ${name}`);
    }
    const own = options.specs.get(agent) ?? toSpec(agent, { ...options, pathOf });
    const spec = forRequest(own, { timezone: options.timezone });
    await options.check(agent, spec, pathOf);
    trees.push({ name, description, spec, delegates: await delegateTrees(agent, { ...options, pathOf }) });
  }
  return trees;
}

/** Stores the specs of an agent's sub-agents, and returns the agent's own, which refers to them. */
export async function storeDelegates(
  catalog: Pick<Catalog, 'agents'>,
  { spec, delegates }: Pick<DelegateTree, 'spec' | 'delegates'>,
  now: string,
): Promise<AgentSpec> {
  if (delegates.length === 0) return spec;
  const stored: Delegate[] = [];
  for (const tree of delegates) {
    const hash = await catalog.agents.putSpec(await storeDelegates(catalog, tree, now), now);
    stored.push({ name: tree.name, description: tree.description, spec: hash });
  }
  return { ...spec, config: { ...spec.config, pause: 'wait' }, delegates: stored };
}
