import { parse } from 'yaml';
import { z } from 'zod';
import { errorMessage } from '../lib/errors.ts';
import { skillDescription, skillName } from '../spec/skill-spec.ts';

/** What a model knows of a skill before it reads it. */
export interface SkillHeader {
  name: string;
  description: string;
}

export interface ParsedSkill extends SkillHeader {
  body: string;
}

/** A skill that cannot be used, or a file of one that cannot be read. Models and clients read the message. */
export class SkillError extends Error {
  static {
    this.prototype.name = 'SkillError';
  }
}

/** Parsing takes a time that grows with the nesting. */
const MAX_FRONT_MATTER_LENGTH = 16 * 1024;

/** Fields that other servers define are ignored. */
const frontMatter = z.object({ name: skillName, description: z.string().trim().pipe(skillDescription) });

/**
 * Parses a `SKILL.md`: front matter in YAML with `name` and `description`, then the body.
 * @throws SkillError
 */
export function parseSkill(text: string): ParsedSkill {
  const [, yaml, body] = /^\uFEFF?---[ \t]*\r?\n([^]*?\n)---[ \t]*(?:\r?\n([^]*))?$/.exec(text) ?? [];
  if (yaml === undefined) throw new SkillError('SKILL.md must begin with front matter between two lines of ---');
  if (yaml.length > MAX_FRONT_MATTER_LENGTH) {
    throw new SkillError(`the front matter of SKILL.md is longer than ${MAX_FRONT_MATTER_LENGTH} characters`);
  }
  let content: unknown;
  try {
    // Without aliases, a few lines cannot stand for gigabytes.
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
  return { ...parsed.data, body: (body ?? '').trim() };
}
