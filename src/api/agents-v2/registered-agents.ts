import type { Catalog } from '../../catalog/catalog.ts';
import type { DefinedAgent } from '../../catalog/agent-definitions.ts';
import type { AgentSpec } from '../../spec/agent-spec.ts';
import { identifier } from '../../spec/bounds.ts';
import { ApiError } from '../http/errors.ts';
import { toAgent } from './spec-to-agent.ts';
import type { Agent } from './wire/agent.ts';

/** A registered agent at one of its revisions. */
export interface RegisteredAgent {
  name: string;
  revision: number;
  /** With the names of what it refers to. */
  definition: Agent;
  /** Set if it was registered through another API: then this is the agent, and the definition only shows it. */
  spec: AgentSpec | undefined;
}

/** The column of the revision has 32 bits. */
const MAX_REVISION = 2 ** 31 - 1;

/** The agent to which a name refers: `name`, or `name:N` for its revision N. */
export async function findAgent(catalog: Catalog, reference: string): Promise<RegisteredAgent | undefined> {
  const agent = await readAgent(catalog, reference);
  // Names of the Sessions API may contain a colon, so the whole reference comes first.
  const [, name, revision] = /^(.+):(\d{1,10})$/.exec(reference) ?? [];
  return agent ?? (name === undefined ? undefined : readAgent(catalog, name, Number(revision)));
}

/** The newest revision of an agent, or an earlier one. */
export async function readAgent(
  catalog: Catalog,
  name: string,
  revision?: number,
): Promise<RegisteredAgent | undefined> {
  if (!identifier.safeParse(name).success || (revision !== undefined && revision > MAX_REVISION)) return undefined;
  const agent = await catalog.agentDefinitions.get(name, revision);
  return agent && toRegistered(catalog, agent);
}

export async function toRegistered(
  { agents }: Catalog,
  { name, version, definition, spec_hash: specHash }: DefinedAgent,
): Promise<RegisteredAgent> {
  if (definition !== undefined) {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- validated before it was stored
    return { name, revision: version, definition: JSON.parse(definition) as Agent, spec: undefined };
  }
  const spec = await agents.spec(specHash);
  return { name, revision: version, definition: toAgent(name, spec), spec };
}

export function agentNotFound(name: string): ApiError {
  return new ApiError('agent_not_found', `there is no agent ${JSON.stringify(name)}`);
}
