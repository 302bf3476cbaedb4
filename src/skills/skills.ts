import type { AgentSpec } from '../spec/agent-spec.ts';
import type { AgentSkill } from '../spec/skill-spec.ts';
import { SkillError, type SkillHeader } from './skill-file.ts';
import { SkillFolders } from './skill-folders.ts';

/** The skills of an agent, as they currently are. */
export interface ListedSkills {
  skills: SkillHeader[];
  /** Those that cannot be read any more, and why. */
  unavailable: { skill: string; reason: string }[];
}

/** The name of a skill in an agent; undefined if it has none. */
export function skillNameOf({ name, fqn }: AgentSkill): string | undefined {
  return name ?? fqn ?? undefined;
}

/** The skills of agents: those of the configured folders, and those that are inside their specs. */
export class Skills {
  readonly #folders: SkillFolders;

  private constructor(folders: SkillFolders) {
    this.#folders = folders;
  }

  /** @throws StartupError that names a folder or a skill that cannot be read */
  static async open(folders: readonly string[]): Promise<Skills> {
    const opened = new SkillFolders(folders);
    await opened.check();
    return new Skills(opened);
  }

  async list({ skills: selected }: AgentSpec): Promise<ListedSkills> {
    const listed: ListedSkills = { skills: [], unavailable: [] };
    for (const skill of selected ?? []) {
      const name = skillNameOf(skill) ?? '';
      try {
        listed.skills.push(isInline(skill) ? inlineHeader(skill, name) : await this.#folders.find(name));
      } catch (error) {
        if (!(error instanceof SkillError)) throw error;
        listed.unavailable.push({ skill: name, reason: error.message });
      }
    }
    return listed;
  }

  /** The text of a skill with the paths of its files, or with `file` that of one of them. @throws SkillError */
  async read({ skills }: AgentSpec, name: string, file?: string): Promise<string> {
    const skill = (skills ?? []).find((one) => skillNameOf(one) === name);
    if (!skill) throw new SkillError(`there is no skill ${JSON.stringify(name)}`);
    if (!isInline(skill)) {
      const found = await this.#folders.find(name);
      return file === undefined
        ? withFiles(found.body, await this.#folders.files(found))
        : this.#folders.text(found, file);
    }
    const files = skill.files ?? {};
    if (file === undefined) return withFiles(skill.content ?? '', Object.keys(files));
    const text = Object.hasOwn(files, file) ? files[file] : undefined;
    if (text === undefined) throw new SkillError(`the skill ${name} has no file ${JSON.stringify(file)}`);
    return text;
  }
}

/** Whether a skill is inside the spec. */
export function isInline({ description, content, files }: AgentSkill): boolean {
  return [description, content, files].some((field) => field !== undefined && field !== null);
}

function inlineHeader({ description }: AgentSkill, name: string): SkillHeader {
  return { name, description: description ?? '' };
}

function withFiles(body: string, files: string[]): string {
  if (files.length === 0) return body;
  return `${body}\n\nFiles of this skill, which are read by their "path":\n${files.map((file) => `- ${file}`).join('\n')}`;
}
