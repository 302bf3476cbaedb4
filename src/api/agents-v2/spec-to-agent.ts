import { skillNameOf } from '../../skills/skills.ts';
import type { AgentSpec } from '../../spec/agent-spec.ts';
import type { Agent } from './wire/agent.ts';

const EFFORTS = ['low', 'medium', 'high', 'xhigh'] as const;

/** An agent of the Sessions API as this API shows it: without what this API has no words for. */
export function toAgent(
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
      skills?.map((skill) => {
        const skillName = skillNameOf(skill) ?? '';
        const { description, content } = skill;
        return description && content ? { name: skillName, description, body: content } : skillName;
      }) ?? null,
    answer_format: format?.type === 'json_schema' ? (format.json_schema.schema ?? null) : null,
    tools: tools?.map((tool) => ({ ...tool, description: tool.description ?? '' })) ?? null,
  };
}
