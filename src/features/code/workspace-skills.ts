import { errorMessage } from '../../lib/errors.ts';
import { WORKSPACE } from '../../spec/workspace-path.ts';
import { skillLine, SKILL_TAG_NOTE } from '../skills/read-skill.ts';
import { parseSkill, SKILL_FILE, SkillError } from '../skills/skill-file.ts';
import type { OpenedWorkspace } from './workspace/stored-workspace.ts';

/** The folder with the skills of the project in a workspace, which is also used by other coding agents. */
const FOLDER = '.agents/skills';

/** Limits the skills, which code can make, and each of which is a part of every prompt. */
const MAX_SKILLS = 20;

/** The front matter is at the beginning of a skill. */
const MAX_READ_BYTES = 64 * 1024;

/** The texts for prompts about the skills in a workspace: a list of them, and the problems of invalid ones. */
export async function workspaceSkills(files: OpenedWorkspace): Promise<string[]> {
  const lines: string[] = [];
  const problems: string[] = [];
  const names = await files.names(FOLDER);
  for (const name of names.slice(0, MAX_SKILLS)) {
    const text = await files.text(`${FOLDER}/${name}/${SKILL_FILE}`, MAX_READ_BYTES);
    if (text === undefined) continue;
    try {
      lines.push(skillLine(parseSkill(text, name)));
    } catch (error) {
      if (!(error instanceof SkillError)) throw error;
      problems.push(`The skill ${JSON.stringify(name)} of your workspace cannot be used: ${errorMessage(error)}`);
    }
  }
  if (names.length > MAX_SKILLS)
    problems.push(`Of the skills in your workspace, only the first ${MAX_SKILLS} are listed.`);
  if (lines.length === 0) return problems;
  const list =
    'The project in your workspace has skills, too. Before you begin a task that fits the description of one, read it ' +
    `with read_file: ${WORKSPACE}/${FOLDER}/<name>/${SKILL_FILE}. ${SKILL_TAG_NOTE}\n${lines.join('\n')}`;
  return [list, ...problems];
}
