import { z } from 'zod';
import { bounded } from '../../../spec/bounds.ts';
import { environment, type Environment } from './environment.ts';
import { agentReference, catalogName } from './names.ts';

/** The shapes of agents and skills. */

const text = z.string().max(1_000_000);
const jsonSchema = z.record(z.string(), z.unknown());

export const toolDefinition = z
  .strictObject({
    name: z
      .string()
      .regex(/^[A-Za-z_][A-Za-z0-9_]{0,63}$/, 'must be 1 to 64 letters, digits and _, not beginning with a digit'),
    description: z.string().max(10_000),
    input_schema: jsonSchema.nullish().describe('JSON Schema of the arguments, an object'),
  })
  .meta({ id: 'ToolDefinition' });

export const skill = z
  .strictObject({
    name: catalogName,
    description: z.string().min(1).max(1_024).describe('when to use it: the model reads this to decide'),
    body: z.string().min(1).max(65_536).describe('Markdown'),
    source: z.string().max(2_048).nullish().describe('where the text comes from'),
    url_pattern: z.string().max(1_024).nullish().describe('a regular expression of the URLs for which it is meant'),
  })
  .meta({ id: 'Skill' });

export const skillPatch = skill.omit({ name: true }).partial().meta({ id: 'SkillPatch' });

const agentFields = {
  name: catalogName,
  description: z.string().max(10_000).describe('what the agent does; agents that delegate to it read this'),
  environments: bounded(z.array(z.union([catalogName, environment])), 10).describe(
    'ids of registered environments, or definitions; at most one of a kind',
  ),
  model: z.string().min(1).max(256).nullish().describe('default: the model that the operator has chosen'),
  reasoning_effort: z.enum(['disabled', 'low', 'medium', 'high', 'xhigh']).nullish(),
  instructions: text.nullish(),
  skills: bounded(z.array(z.union([catalogName, skill])), 100)
    .nullish()
    .describe('names of registered skills or of skills of the operator, or definitions'),
  answer_format: jsonSchema.nullish().describe('JSON Schema of the answer; without it the answer is text'),
  tools: bounded(z.array(toolDefinition), 128).nullish().describe('tools that the client runs'),
};

const MAX_SUBAGENTS = 20;

export interface Agent extends z.infer<z.ZodObject<typeof agentFields>> {
  subagents?: (string | Agent)[] | null | undefined;
}

const subagents = z
  .lazy((): z.ZodType<(string | Agent)[]> => bounded(z.array(z.union([agentReference, agent])), MAX_SUBAGENTS))
  .nullish()
  .describe('the agents to which it delegates: names of the catalog, or definitions');

/** An agent: what it is for, and all that it needs. */
export const agent = z.strictObject({ ...agentFields, subagents }).meta({ id: 'Agent' });

export const agentPatch = agent.omit({ name: true }).partial().meta({ id: 'AgentPatch' });

/** Agents of another API may break the rules of this one. */
export const agentResource = z
  .object({
    ...agentFields,
    name: z.string(),
    skills: z.array(z.union([z.string(), skill.extend({ name: z.string() })])).nullish(),
    reasoning_effort: z.string().nullish(),
    tools: z.array(toolDefinition.extend({ name: z.string() })).nullish(),
    subagents: z.array(z.unknown()).nullish().describe('names, or agents'),
    revision: z.int().optional().describe('only in lists, with include=revision'),
  })
  .meta({ id: 'AgentResource' });

export const agentRevision = z
  .object({
    number: z.int(),
    created_at: z.iso.datetime(),
    created_by: z.string().nullable().describe('null: it was registered through another API'),
    message: z.string().nullable(),
    restored_from: z.int().nullable(),
  })
  .meta({ id: 'AgentRevision' });

export type Skill = z.infer<typeof skill>;

/** An agent with the definitions of all that it refers to; a skill without one is a skill of the operator. */
export type FullAgent = Omit<Agent, 'environments' | 'subagents'> & {
  environments: Environment[];
  subagents?: FullAgent[] | null | undefined;
};

export type AgentResource = z.infer<typeof agentResource>;
