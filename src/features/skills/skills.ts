import { invalidAgent, type AgentProblem } from '../../engine/agent-check.ts';
import { isGiven } from '../../lib/is-given.ts';
import type { AgentSpec } from '../../spec/agent-spec.ts';
import { skillName, type AgentSkill } from '../../spec/skill-spec.ts';
import { MAX_NAME_BYTES } from '../../spec/workspace-path.ts';
import { builtInSkills, BUILT_IN_NAMES } from './built-in-skills.ts';
import { SKILL_FILE, SkillError, skillText, type SkillHeader } from './skill-file.ts';
import { SkillFolders } from './skill-folders.ts';

/** The skills of an agent, as they currently are. */
export interface ListedSkills {
  skills: SkillHeader[];
  /** The skills that can no longer be read, and why. */
  unavailable: { skill: string; reason: string }[];
}

/** A file of a skill for the code of its agent. Its path is `<name of the skill>/<path in its folder>`. */
export type SkillFile = [path: string, content: string | Buffer];

/** The name of a skill in an agent; undefined if it has none. */
export function skillNameOf({ name, fqn }: AgentSkill): string | undefined {
  return name ?? fqn ?? undefined;
}

/** The skills of an agent: those of its spec, and the built-in ones that it neither disables nor replaces. */
export function skillsOfAgent(spec: AgentSpec): AgentSkill[] {
  const own = spec.skills ?? [];
  const builtIn = builtInSkills(spec);
  const named = new Set(own.filter((skill) => skill.enabled === false || isInline(skill)).map(skillNameOf));
  const names = new Set(builtIn.map(skillNameOf));
  const others = own.filter((skill) => skill.enabled !== false && (isInline(skill) || !names.has(skillNameOf(skill))));
  return [...others, ...builtIn.filter((skill) => !named.has(skillNameOf(skill)))];
}

/** The skills of agents: from the configured folders, from their specs, and the built-in ones. */
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

  async list(spec: AgentSpec): Promise<ListedSkills> {
    const listed: ListedSkills = { skills: [], unavailable: [] };
    for (const skill of skillsOfAgent(spec)) {
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

  /** All files of an agent's skills. Skills that cannot be read are left out; the prompt names them. */
  async files(spec: AgentSpec): Promise<SkillFile[]> {
    const files: SkillFile[] = [];
    for (const skill of skillsOfAgent(spec)) {
      const name = skillNameOf(skill) ?? '';
      if (isInline(skill)) {
        files.push([`${name}/${SKILL_FILE}`, skillText(inlineHeader(skill, name), skill.content ?? '')]);
        for (const [file, text] of Object.entries(skill.files ?? {})) files.push([`${name}/${file}`, text]);
        continue;
      }
      const found = await unlessUnreadable(() => this.#folders.find(name));
      if (!found) continue;
      for (const file of [SKILL_FILE, ...(await this.#folders.files(found))]) {
        const content = await unlessUnreadable(() => this.#folders.content(found, file));
        if (content) files.push([`${name}/${file}`, content]);
      }
    }
    return files;
  }

  /** The first problem of an agent's skills: in its spec, else in the files. */
  async firstProblem(spec: AgentSpec): Promise<AgentProblem | undefined> {
    const problem = (i: number, message: string) => invalidAgent(`skills.${i}`, message);
    const names: string[] = [];
    for (const [i, skill] of (spec.skills ?? []).entries()) {
      const name = skillNameOf(skill);
      if (name === undefined) return problem(i, 'a skill needs a name');
      if (names.includes(name)) return problem(i, `two skills are named ${name}: each needs a unique name`);
      names.push(name);
      if (skill.enabled === false && !BUILT_IN_NAMES.has(name)) {
        return problem(i, `only ${[...BUILT_IN_NAMES].join(', ')} can be disabled: omit the skill ${name} instead`);
      }
      if (!isInline(skill)) continue;
      // Checked here, since `fqn`, the other field for the name, may be any text, and the name becomes a folder's.
      const { error } = skillName.safeParse(name);
      if (error) return problem(i, `the name of a skill with its own text ${error.issues[0]?.message}`);
      const file = unwritable(Object.keys(skill.files ?? {}));
      if (file !== undefined) return problem(i, `the skill ${name} cannot have the file ${JSON.stringify(file)}`);
      if (isGiven(skill.description) && isGiven(skill.content)) continue;
      const needed = 'needs a description and content; omit both to select the skill of the server';
      return problem(i, `the skill ${name} has its own text, and ${needed}`);
    }
    const [first] = (await this.list(spec)).unavailable;
    return first && problem(names.indexOf(first.skill), `the skill ${first.skill}: ${first.reason}`);
  }

  /** The text of a skill with the paths of its files or, with `file`, the text of that file. @throws SkillError */
  async read(spec: AgentSpec, name: string, file?: string): Promise<string> {
    const skill = skillsOfAgent(spec).find((one) => skillNameOf(one) === name);
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

/** The first file that cannot exist beside the others in the folder of a skill. */
function unwritable(files: string[]): string | undefined {
  return files.find((file) => {
    const isTooLong = file.split('/').some((name) => Buffer.byteLength(name) > MAX_NAME_BYTES);
    const isFolder = files.some((other) => other.startsWith(`${file}/`));
    return isTooLong || isFolder || file === SKILL_FILE || file.startsWith(`${SKILL_FILE}/`);
  });
}

async function unlessUnreadable<T>(read: () => Promise<T>): Promise<T | undefined> {
  try {
    return await read();
  } catch (error) {
    if (error instanceof SkillError) return undefined;
    throw error;
  }
}

/** Whether the spec contains the skill itself. */
function isInline({ description, content, files }: AgentSkill): boolean {
  return [description, content, files].some(isGiven);
}

function inlineHeader({ description }: AgentSkill, name: string): SkillHeader {
  return { name, description: description ?? '' };
}

function withFiles(body: string, files: string[]): string {
  if (files.length === 0) return body;
  return `${body}\n\nFiles of this skill, which are read by their "path":\n${files.map((file) => `- ${file}`).join('\n')}`;
}
