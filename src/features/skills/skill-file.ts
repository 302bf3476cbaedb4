import { parse, stringify } from 'yaml';
import { z } from 'zod';
import { errorMessage, NamedError } from '../../lib/errors.ts';
import { skillDescription, skillName } from '../../spec/skill-spec.ts';

/** The part of a skill that a model sees before it reads the skill. */
export interface SkillHeader {
  name: string;
  description: string;
}

export interface ParsedSkill extends SkillHeader {
  body: string;
}

/** The name of the file with the text of a skill, in its folder. */
export const SKILL_FILE = 'SKILL.md';

/** A skill cannot be used, or one of its files cannot be read. The message is for models and clients. */
export class SkillError extends NamedError {}

/** Bounds the time of parsing, which grows with the nesting. */
const MAX_FRONT_MATTER_LENGTH = 16 * 1024;

/** Other fields are ignored: other servers define some. */
const frontMatter = z.object({ name: skillName, description: z.string().trim().pipe(skillDescription) });

/**
 * Parses a `SKILL.md`: front matter in YAML with `name` and `description`, then the body.
 *
 * @param folder the name of its folder, which must equal the name of the skill
 * @throws SkillError
 */
export function parseSkill(text: string, folder: string): ParsedSkill {
  const [, yaml, body] = /^\uFEFF?---[ \t]*\r?\n([^]*?\n)---[ \t]*(?:\r?\n([^]*))?$/.exec(text) ?? [];
  if (yaml === undefined) throw new SkillError('SKILL.md must begin with front matter between two lines of ---');
  if (yaml.length > MAX_FRONT_MATTER_LENGTH) {
    throw new SkillError(`the front matter of SKILL.md is longer than ${MAX_FRONT_MATTER_LENGTH} characters`);
  }
  let content: unknown;
  try {
    // Aliases are forbidden, since a few lines with them can expand to gigabytes.
    content = parse(yaml, { maxAliasCount: 0, logLevel: 'error' });
  } catch (error) {
    const [line] = errorMessage(error).split('\n');
    throw new SkillError(`the front matter of SKILL.md is not valid YAML: ${line}`, { cause: error });
  }
  const parsed = frontMatter.safeParse(content);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    const field = issue?.path.join('.') || 'it';
    throw new SkillError(`the front matter of SKILL.md: ${field}: ${issue?.message}`);
  }
  const { name } = parsed.data;
  if (name !== folder) {
    throw new SkillError(`the front matter of SKILL.md names it ${name}, but its folder is ${folder}`);
  }
  return { ...parsed.data, body: (body ?? '').trim() };
}

/** The `SKILL.md` of a skill. */
export function skillText({ name, description }: SkillHeader, body: string): string {
  return `---\n${stringify({ name, description })}---\n${body}\n`;
}
