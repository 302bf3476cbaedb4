import { z } from 'zod';
import { codeActionsOf } from '../../spec/code-actions.ts';
import { SKILLS_FOLDER } from '../../spec/workspace-path.ts';
import { SKILL_FILE, SkillError, type SkillHeader } from './skill-file.ts';
import { skillNameOf, skillsOfAgent, type ListedSkills, type Skills } from './skills.ts';
import type { ModelCallPart } from '../../agents/model-call-part.ts';
import type { CallOutcome } from '../../mcp/call-outcome.ts';
import type { SystemTool } from '../../tools/system-tool.ts';

const input = z.object({ name: z.string(), path: z.string().optional() });

/** Lets the model read the skills of an agent, if it has any. */
export const READ_SKILL: SystemTool<{ skills: Pick<Skills, 'read'> }> = {
  name: 'read_skill',
  offer: (spec) => {
    // An agent that acts in code has its skills as files.
    if (codeActionsOf(spec)) return undefined;
    const names = skillsOfAgent(spec).flatMap((skill) => skillNameOf(skill) ?? []);
    if (names.length === 0) return undefined;
    return {
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
    };
  },
  effect: 'retry',
  run: async ({ arguments: args }, { spec }, { skills }) => {
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
  },
};

/** Adds the list of an agent's skills to its prompt. */
export function skillsPart(skills: Pick<Skills, 'list'>): ModelCallPart {
  return {
    prompt: async (spec) => {
      const listed = await skills.list(spec);
      const notes = listed.unavailable.map(
        ({ skill, reason }) => `The skill ${JSON.stringify(skill)} is currently unavailable: ${reason}`,
      );
      return { skills: skillsNote(listed.skills, codeActionsOf(spec) !== undefined), notes };
    },
  };
}

/** Explains the tag that user interfaces write for `/name arguments`. */
export const SKILL_TAG_NOTE =
  '`<skill name="x">…</skill>` in a message of the user asks you to use the skill x, for what is inside.';

/** The names and descriptions of an agent's skills; empty if it has none. */
function skillsNote(skills: ListedSkills['skills'], areFiles: boolean): string {
  if (skills.length === 0) return '';
  const way = areFiles ? `read_file: ${SKILLS_FOLDER}/<name>/${SKILL_FILE}. ${SKILL_TAG_NOTE}` : `${READ_SKILL.name}.`;
  return (
    'You have skills: instructions for particular tasks. Before you begin a task that fits the description of one, ' +
    `read it with ${way}\n${skills.map(skillLine).join('\n')}`
  );
}

/** A skill in a list for the model. */
export function skillLine({ name, description }: SkillHeader): string {
  return `- ${name}: ${description.replaceAll(/\s+/g, ' ')}`;
}
