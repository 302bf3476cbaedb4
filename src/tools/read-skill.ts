import { z } from 'zod';
import { SkillError } from '../skills/skill-file.ts';
import { skillNameOf, type Skills } from '../skills/skills.ts';
import type { CallOutcome } from '../mcp/call-outcome.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import type { AgentTool } from './toolset.ts';

export const READ_SKILL = 'read_skill';

/** Lets the model read the skills of an agent. Undefined if it has none. */
export function readSkill({ skills }: AgentSpec): AgentTool | undefined {
  const names = (skills ?? []).flatMap((skill) => skillNameOf(skill) ?? []);
  if (names.length === 0) return undefined;
  return {
    name: READ_SKILL,
    description: 'Read a skill: the instructions for a task, or one of the files that they refer to.',
    parameters: {
      type: 'object',
      properties: {
        name: { type: 'string', enum: names, description: 'The name of the skill.' },
        path: { type: 'string', description: 'The path of one of its files. Default: its instructions.' },
      },
      required: ['name'],
      additionalProperties: false,
    },
    info: { type: 'system', name: READ_SKILL },
    run: { to: 'server', effect: 'retry', approval: false },
  };
}

const input = z.object({ name: z.string(), path: z.string().optional() });

/**
 * Runs a call of the tool. `args`: as the model wrote them.
 * @throws SyntaxError or z.ZodError if the arguments do not fit the schema of `readSkill`
 */
export async function skillResult(skills: Pick<Skills, 'read'>, spec: AgentSpec, args: string): Promise<CallOutcome> {
  const { name, path } = input.parse(JSON.parse(args));
  const result = (text: string, isError: boolean): CallOutcome => ({
    status: 'result',
    isError,
    content: [{ type: 'text', text }],
  });
  try {
    return result(await skills.read(spec, name, path), false);
  } catch (error) {
    if (error instanceof SkillError) return result(error.message, true);
    throw error;
  }
}
