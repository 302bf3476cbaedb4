import { ConfigError } from '../config.ts';
import type { Services } from './services.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';

/**
 * Registers the agents of a folder.
 * @throws ConfigError that names the first one that can't run here
 */
export async function registerAgents(
  { catalog, agentCheck }: Pick<Services, 'catalog' | 'agentCheck'>,
  agents: Map<string, AgentSpec>,
): Promise<void> {
  const now = new Date().toISOString();
  for (const [name, spec] of agents) {
    const problem = await agentCheck.problem(spec, null);
    if (problem) throw new ConfigError(`EVERTURN_AGENTS: ${name}.json: ${problem.param}: ${problem.message}`);
    await catalog.agents.put(name, spec, now);
  }
}
