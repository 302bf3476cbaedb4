import { z } from 'zod';
import { bounded } from './bounds.ts';
import { FOREIGN } from './foreign-fields.ts';

/** The name of a skill, and of its folder: https://agentskills.io/specification */
export const skillName = z
  .string()
  .max(64)
  .regex(/^[a-z0-9]+(?:-[a-z0-9]+)*$/, 'must be small letters and digits, with single hyphens between them');

/** A path within a skill's folder: no absolute one, no `..`, no hidden file. */
export const skillPath = z
  .string()
  .max(256)
  .regex(
    // oxlint-disable-next-line no-control-regex -- the file system rejects NUL
    /^[^\u0000/\\.][^\u0000/\\]*(?:\/[^\u0000/\\.][^\u0000/\\]*)*$/,
    'must be a relative path without hidden files, such as examples/order.json',
  );

export const skillDescription = z.string().min(1).max(1_024);

/** A skill of an agent: one that is configured on the server, by its name, or one with its own content. */
export const agentSkill = z
  .strictObject({
    name: skillName.nullish().describe('of a skill in EVERTURN_SKILLS, or of the one that is given here'),
    fqn: z.string().min(1).max(256).nullish().describe('another word for name'),
    enabled: z.boolean().nullish().describe('false: the agent does not have this built-in skill'),
    type: z.string().max(64).nullish().describe('must be absent: skills are not read from other places'),
    description: skillDescription.nullish().describe('what the skill is for, and when to read it; with content'),
    content: z.string().min(1).max(65_536).nullish().describe('the text of the skill, in Markdown'),
    files: bounded(z.record(skillPath, z.string().max(262_144)), 20)
      .nullish()
      .describe('further texts by their paths, which the content may refer to; with content'),
    ...FOREIGN.skill,
  })
  .meta({ id: 'AgentSkill' });

export type AgentSkill = z.infer<typeof agentSkill>;
