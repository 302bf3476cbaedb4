import type { KernelCatalog } from '../catalog/catalog.ts';
import type { SessionOwner } from '../core/history.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import { checkAgent, type AgentCheck } from './agent-check.ts';
import { EngineError } from './errors.ts';

/** Each model call of the turn gets their names and hashes. */
const MAX_AGENTS = 20;

interface PinnedAgentsOptions {
  catalog: KernelCatalog;
  agentCheck: AgentCheck;
  owner: SessionOwner;
}

/**
 * The registered agents that an agent may start as sub-agents, and those that these may start: the hashes of their
 * newest specs by their names. A turn keeps them, also if they change while it runs.
 * @throws EngineError if one is not registered, or cannot run
 */
export async function pinnedAgents(
  spec: AgentSpec,
  { catalog, agentCheck, owner }: PinnedAgentsOptions,
): Promise<Record<string, string> | undefined> {
  const hashes = new Map<string, string>();
  const names = [...(spec.agents ?? [])];
  for (let name = names.shift(); name !== undefined; name = names.shift()) {
    if (hashes.has(name)) continue;
    const agent = await catalog.agents.get(name);
    if (!agent) throw invalid(`no agent is registered under the name ${name}, which this agent may start`);
    // It runs as in a session of its own, where the author of a draft has no more rights than any other user.
    await checkAgent(agent.spec, { owner: { ...owner, draftRoles: null }, agentCheck, path: `agents.${name}.` });
    await agentCheck.logWarnings(agent);
    hashes.set(name, agent.spec_hash);
    if (hashes.size > MAX_AGENTS)
      throw invalid(`it may start more than ${MAX_AGENTS} agents, those of its sub-agents included`);
    names.push(...(agent.spec.agents ?? []));
  }
  return hashes.size > 0 ? Object.fromEntries(hashes) : undefined;
}

function invalid(message: string): EngineError {
  return new EngineError('invalid_agent', message, { param: 'agent.agents' });
}
