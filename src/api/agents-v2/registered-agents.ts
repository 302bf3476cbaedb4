import type { Catalog } from '../../features/catalog.ts';
import type { DefinedAgent } from '../../features/agent-sessions/agent-definitions.ts';
import { skillNameOf } from '../../features/skills/skills.ts';
import type { AgentSpec } from '../../spec/agent-spec.ts';
import { identifier } from '../../spec/bounds.ts';
import type { Agent } from './wire/agent.ts';

/** A registered agent at one of its revisions. */
export interface RegisteredAgent {
  name: string;
  revision: number;
  /** Refers to skills, environments and sub-agents by their names. */
  definition: Agent;
  /** Set if it was registered through another API: the engine runs this, and the definition is for display only. */
  spec: AgentSpec | undefined;
}

/** The reasoning efforts that this API supports. */
const EFFORTS = ['low', 'medium', 'high', 'xhigh'] as const;

/** The column of the revision has 32 bits. */
const MAX_REVISION = 2 ** 31 - 1;

/** The agent to which a name refers: `name`, or `name:N` for its revision N. */
export async function findAgent(catalog: Catalog, reference: string): Promise<RegisteredAgent | undefined> {
  const agent = await readAgent(catalog, reference);
  // Names of the Sessions API may contain a colon, so the whole reference is tried as a name first.
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

/** An agent of the Sessions API as this API shows it: without the parts that this API does not have. */
function toAgent(
  name: string,
  { model, instructions, response_format: format, client_tools: tools, skills }: AgentSpec,
): Agent {
  return {
    name,
    description: '',
    environments: [],
    model: model.name,
    reasoning_effort: EFFORTS.find((effort) => effort === model.params?.reasoning_effort) ?? null,
    instructions: instructions ?? null,
    skills:
      skills
        ?.filter(({ enabled }) => enabled !== false)
        .map((skill) => {
          const skillName = skillNameOf(skill) ?? '';
          const { description, content } = skill;
          return description && content ? { name: skillName, description, body: content } : skillName;
        }) ?? null,
    answer_format: format?.type === 'json_schema' ? (format.json_schema.schema ?? null) : null,
    tools: tools?.map((tool) => ({ ...tool, description: tool.description ?? '' })) ?? null,
  };
}
