import { z } from 'zod';
import { bounded } from '../../../spec/bounds.ts';

/** The shapes of agents, and of what they are made of. */

const SEGMENT = '[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?';
const NAME_RULE = 'must be lower-case letters, digits and hyphens, with an optional namespace: org/name';

/** The name of an agent or a skill in the catalog, or the id of an environment. */
export const catalogName = z
  .string()
  .max(127)
  .regex(new RegExp(`^(?:${SEGMENT}/)?${SEGMENT}$`), NAME_RULE);

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
    description: z.string().min(1).max(1_024),
    body: z.string().min(1).max(65_536).describe('Markdown'),
    source: z.string().max(2_048).nullish(),
    url_pattern: z.string().max(1_024).nullish(),
  })
  .meta({ id: 'Skill' });

const environmentFields = {
  id: z.string().min(1).max(127),
  session_id: z.string().max(256).nullish(),
  lazy: z.boolean().optional(),
};

const web = z.strictObject({
  kind: z.literal('web'),
  ...environmentFields,
  host: z.enum(['cloud', 'user_device']).default('cloud'),
  start_url: z.url().max(2_048).default('https://www.bing.com'),
  headless: z.boolean().default(false),
  mode: z
    .discriminatedUnion('type', [
      z.strictObject({
        type: z.literal('visual'),
        width: z.int().min(1).max(10_000).default(1_200),
        height: z.int().min(1).max(10_000).default(1_200),
        markdown: z.boolean().default(false),
      }),
      z.strictObject({ type: z.literal('text'), chunk_size: z.int().min(1).max(1_000_000).default(20_000) }),
    ])
    .optional(),
  settle_s: z.number().min(0).max(600).nullish(),
  vault_id: z.string().max(256).nullish(),
  browser_profile_id: z.string().max(256).nullish(),
  use_default_browser_profile: z.boolean().default(false),
  persist_browser_profile: z.boolean().default(false),
  network: z.record(z.string(), z.unknown()).nullish(),
});

const desktop = z.strictObject({
  kind: z.literal('desktop'),
  ...environmentFields,
  host: z.literal('user_device').default('user_device'),
  settle_s: z.number().min(0).max(600).nullish(),
  screenshot_max_width: z.int().min(1).max(10_000).nullish(),
});

/** What an agent acts in. */
export const environment = z.discriminatedUnion('kind', [web, desktop]).meta({ id: 'Environment' });

const agentFields = {
  name: catalogName,
  description: z.string().max(10_000).describe('what the agent does; agents that delegate to it read this'),
  environments: bounded(z.array(z.union([catalogName, environment])), 10).describe(
    'ids of registered environments, or definitions; at most one of a kind',
  ),
  model: z.string().min(1).max(256).nullish().describe('default: the model that the operator has chosen'),
  reasoning_effort: z.enum(['disabled', 'low', 'medium', 'high', 'xhigh']).nullish(),
  instructions: text.nullish(),
  skills: bounded(z.array(z.union([catalogName, skill])), 100).nullish(),
  answer_format: jsonSchema.nullish().describe('JSON Schema of the answer; without it the answer is text'),
  tools: bounded(z.array(toolDefinition), 128).nullish().describe('tools that the client runs'),
};

const MAX_SUBAGENTS = 20;

export interface Agent extends z.infer<z.ZodObject<typeof agentFields>> {
  subagents?: (string | Agent)[] | null | undefined;
}

const subagents = z
  .lazy((): z.ZodType<(string | Agent)[]> => z.array(z.union([catalogName, agent])).max(MAX_SUBAGENTS))
  .nullish()
  .describe('the agents to which it delegates: names of the catalog, or definitions');

/** An agent: what it is for, and all that it needs. */
export const agent = z.strictObject({ ...agentFields, subagents }).meta({ id: 'Agent' });

export type Environment = z.infer<typeof environment>;
export type Skill = z.infer<typeof skill>;
