import type { AgentWithSpec } from '../../catalog/agents.ts';
import type { Catalog } from '../../features/catalog.ts';
import { identifier } from '../../spec/bounds.ts';
import { agentNotFound } from '../http/errors.ts';

/** The newest version of an agent. @throws ApiError `agent_not_found`, also for a name that none can have */
export async function requireAgent({ agents }: Pick<Catalog, 'agents'>, name: string): Promise<AgentWithSpec> {
  const agent = identifier.safeParse(name).success ? await agents.get(name) : undefined;
  if (!agent) throw agentNotFound(name);
  return agent;
}
