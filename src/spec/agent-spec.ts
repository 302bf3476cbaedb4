import { z } from 'zod';
import type { AudioFormat } from '../core/audio-formats.ts';
import { ON_RUNNING } from '../core/session.ts';
import { ROLES } from '../core/subject.ts';
import { bounded } from './bounds.ts';
import { budgetSpec } from './budget-spec.ts';
import { codeActionsSpec } from './code-actions-spec.ts';
import { FOREIGN } from './foreign-fields.ts';
import { agentSkill } from './skill-spec.ts';

/**
 * An agent's definition (`docs/sessions-api.md`, section 6). Null means unset, as SDKs send it. Unknown keys are rejected:
 * an agent without what they ask for would be another one, and possibly an unsafe one.
 */

const flag = z.boolean().nullish();
const name = z.string().min(1).max(256);
const description = z.string().max(10_000).nullish();
export const MAX_PROMPT_LENGTH = 1_000_000;

/** A text for the model; the bound exceeds the context of any model. */
export const prompt = z.string().max(MAX_PROMPT_LENGTH);

export const selector = bounded(z.array(name), 1_000).nullish();

const mcpServerFields = {
  name: z.string().min(1).max(128),
  enable_tools: selector.describe('"@all" (the default), "@read-only" or tool names'),
  disable_tools: selector.describe('"@all", "@read-only" or tool names'),
  preload_tools: selector.describe('"@all", "@read-only" or tool names: offered at once although preload is false'),
  require_approval_for_tools: selector.describe(
    '"@all", "@write", "@destructive", "@unannotated" or tool names; default ["@write", "@destructive"], and for a ' +
      'registered server "@unannotated", too',
  ),
  preload: flag.describe('default true; false: the model is offered a tool of this server once it has searched for it'),
  allowed_callers: bounded(z.array(z.enum(['model', 'code'])), 2)
    .nullish()
    .describe('who calls its tools: the model (default), and the code of an agent that acts in code'),
  begin_ahead: flag.describe(
    'whether calls of its read-only tools may begin before their message is recorded; default true for a registered ' +
      'server, false for an inline one',
  ),
};

export const serverUrl = z.url({ protocol: /^https?$/, error: 'must be an http or https URL' }).max(2_048);

export const mcpServer = z
  .discriminatedUnion('type', [
    z.strictObject({
      type: z.literal('inline'),
      ...mcpServerFields,
      url: serverUrl,
    }),
    z.strictObject({ type: z.literal('truefoundry-mcp-registry'), ...mcpServerFields }),
  ])
  .meta({ id: 'McpServer' });

export const clientTool = z
  .strictObject({
    name: z.string().regex(/^[a-zA-Z0-9_-]{1,64}$/, 'must be 1 to 64 letters, digits, _ or -'),
    description,
    input_schema: z.record(z.string(), z.unknown()).describe('JSON Schema of the arguments'),
  })
  .meta({ id: 'ClientTool' });

export const modelParams = z.strictObject({
  max_tokens: z.number().positive().nullish(),
  temperature: z.number().nullish(),
  top_p: z.number().nullish(),
  top_k: z.number().nullish(),
  parallel_tool_calls: flag,
  reasoning_effort: name.nullish(),
  cache_control: z.strictObject({ type: name, ttl: name.optional() }).nullish(),
});

export const responseFormat = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('text') }),
  z.strictObject({ type: z.literal('json_object') }),
  z.strictObject({
    type: z.literal('json_schema'),
    json_schema: z.strictObject({
      name,
      description,
      schema: z.record(z.string(), z.unknown()).nullish(),
      strict: flag,
    }),
  }),
]);

const limit = (max: number) => z.int().min(1).max(max).nullish();
const toggle = z.strictObject({ enabled: flag });

const compaction = z
  .strictObject({
    enabled: flag,
    compaction_threshold_tokens: z
      .int()
      .min(1_000)
      .max(100_000_000)
      .nullish()
      .describe(
        "input tokens above which the conversation is compacted; default 80 % of the model's context, or 50000",
      ),
  })
  .nullish();

/** An issuer and the `sub` of its token take more than a name. */
const subjectId = z.string().min(1).max(1_024);

const approvers = z.strictObject({
  subjects: bounded(z.array(subjectId), 100).nullish().describe('<issuer>#<sub> of tokens, or names of API keys'),
  roles: bounded(z.array(z.enum(ROLES)), 10).nullish(),
});

/** In seconds: at most a year. */
const delay = z.int().min(1).max(31_536_000);

/** The rule of `match`, for the documentation. */
const SOMETHING_GIVEN = [
  { properties: { server: { type: 'string' as const } }, required: ['server'] },
  { properties: { tool: { type: 'string' as const } }, required: ['tool'] },
  { properties: { annotations: { type: 'string' as const } }, required: ['annotations'] },
  { properties: { arguments: { type: 'object' as const, minProperties: 1 } }, required: ['arguments'] },
];

const decisionPolicy = z
  .strictObject({
    match: z
      .strictObject({
        server: name.nullish().describe('the name of the MCP server'),
        tool: name.nullish().describe('the name of the tool on its server; * is any text, ? any character'),
        annotations: z.enum(['@write', '@destructive', '@read-only', '@unannotated']).nullish(),
        arguments: bounded(
          z.record(z.string().regex(/^(\/[^/]*)*$/, 'must be a JSON pointer'), z.record(z.string(), z.unknown())),
          20,
        )
          .nullish()
          .describe('JSON Schemas of arguments, by JSON pointers'),
      })
      .refine(
        ({ server, tool, annotations, arguments: schemas }) =>
          Boolean(server ?? tool ?? annotations) || Object.keys(schemas ?? {}).length > 0,
        {
          error: 'must say which calls it fits; {"tool": "*"} fits all',
          // A misspelt condition is one problem, not two.
          when: ({ issues }) => issues.length === 0,
        },
      )
      .meta({
        description: 'all that is given must fit; something must be given',
        override: { anyOf: SOMETHING_GIVEN },
      }),
    decision: z.enum(['allow', 'ask', 'deny']),
    approvers: approvers.nullish().describe('default: those with the right to decide in the session'),
    exclude_requester: flag.describe(
      'whether the owner of the session, and the author of the newest user message, may not decide; default false',
    ),
    quorum: limit(100).describe('how many subjects must allow the call; default 1'),
    expires_in_seconds: delay.nullish(),
    on_expiry: z.enum(['deny', 'allow', 'end']).nullish().describe('default deny; end: the turn ends with an error'),
    escalate: z.strictObject({ after_seconds: delay, to: approvers }).nullish().describe('who may decide later, too'),
    may_edit_arguments: flag.describe('whether an approval may change the arguments of the call; default true'),
  })
  .meta({ id: 'DecisionPolicy' });

const runtimeConfig = z.strictObject({
  iteration_limit: limit(10_000).describe('model calls per turn, and of each sub-agent; default 100'),
  on_limit: z
    .enum(['fail', 'answer'])
    .nullish()
    .describe('a turn at its iteration_limit: fail (default), or answer with its last model call, without tools'),
  answer_after_seconds: z
    .number()
    .positive()
    .max(31_536_000)
    .nullish()
    .describe('the time that a turn works, without pauses, before it is to answer with its next model call'),
  sandbox: toggle.extend(FOREIGN.sandbox).nullish(),
  dynamic_sub_agents: toggle.nullish(),
  context_management: z.strictObject({ compaction, large_tool_response: toggle.nullish() }).nullish(),
  generative_ui: toggle.nullish(),
  ask_user_questions: toggle.nullish(),
  pause: z
    .enum(['end', 'wait'])
    .nullish()
    .describe('what a turn does that needs an answer to a tool call: end (default), or wait for it'),
  on_unknown: z
    .enum(['tell', 'ask'])
    .nullish()
    .describe('at-most-once calls whose outcome is unknown: tell the model (default), or ask a person what happened'),
  on_running: z
    .enum(ON_RUNNING)
    .nullish()
    .describe(
      'what the request for a turn does while another one runs: cancel it (default); queue: wait until it has ended; ' +
        'steer: give it the messages; or reject: fail with turn_running',
    ),
  budget: budgetSpec.nullish().describe('what a turn, or all turns of a session, may use'),
  decision_policies: bounded(z.array(decisionPolicy), 50)
    .nullish()
    .describe('the first that fits a call decides on it, in place of require_approval_for_tools'),
  structured_output: z
    .strictObject({ max_repairs: z.int().min(0).max(10).nullish() })
    .nullish()
    .describe('how often a turn may ask for another answer if one does not fit its json_schema; default 2'),
  retention_days: limit(36_500).describe(
    'sessions in which nothing has happened for so many days are deleted; default: never',
  ),
});

export const agentSpec = z
  .strictObject({
    model: z.strictObject({
      name: name.describe('<model>, or <provider>/<model>'),
      params: modelParams.nullish(),
      fallbacks: bounded(z.array(name), 8)
        .nullish()
        .describe('the models that are tried in this order if the provider is overloaded or fails'),
    }),
    instructions: prompt.nullish(),
    messages: bounded(z.array(z.strictObject({ type: z.literal('user.message'), content: prompt })), 1_000).nullish(),
    variables: bounded(z.record(name, prompt), 1_000).nullish().describe('filled into {{name}}'),
    mcp_servers: bounded(z.array(mcpServer), 50).nullish(),
    client_tools: bounded(z.array(clientTool), 128).nullish().describe('tools that the client runs'),
    response_format: responseFormat.nullish(),
    agents: bounded(z.array(z.string().min(1).max(128)), 20)
      .nullish()
      .describe('registered agents that the model may start as sub-agents, with their own tools and models'),
    skills: bounded(z.array(agentSkill), 100)
      .nullish()
      .describe('instructions for particular tasks, which the model reads when it needs them'),
    code_actions: codeActionsSpec
      .nullish()
      .describe(
        'the agent acts by Python code in a sandbox; config.sandbox alone, if enabled, does so without approvals',
      ),
    config: runtimeConfig.nullish(),
  })
  .meta({ id: 'AgentSpec' });

/** Options of a model call that not every provider has: see `OPTIONS_OF` in `src/models/model-options.ts`. */
export interface ModelOptions {
  presence_penalty?: number;
  frequency_penalty?: number;
  seed?: number;
  /** For the provider's own records. */
  metadata?: Record<string, string>;
  tool_choice?: ToolChoice;
  /** A limit of the tokens for reasoning, where the provider has one; others go by the model's `reasoning_effort`. */
  reasoning_tokens?: number;
  /** What the model's messages consist of. */
  modalities?: ('text' | 'audio')[];
  /** The model's messages may have images, too. */
  image_output?: true;
  /** The format and the voice of the model's speech. */
  audio?: { format: AudioFormat; voice?: string };
}

/** Whether the model may call tools, must, or must call a particular one. */
export type ToolChoice = 'auto' | 'none' | 'required' | { tool: string };

/** Tools that a client runs, with a prompt about them for the model. */
export interface ClientToolkit {
  name: string;
  system_prompt?: string;
  tools: z.infer<typeof clientTool>[];
  /** The client refreshes it before each model call of a turn after the first. Names of such toolkits are unique. */
  isDynamic?: true;
}

/** The web search that providers run themselves. Not every provider has each option: see `SEARCH_OF` there. */
export interface WebSearch {
  allowed_domains?: string[];
  /** How many searches one message may make. */
  max_uses?: number;
  user_location?: { city?: string; region?: string; country?: string; timezone?: string };
}

/** An agent to which another one delegates tasks: see `delegations` in `src/catalog/schema.ts`. */
export interface Delegate {
  name: string;
  /** The model chooses the agent by it. */
  description: string;
  /** The hash of its spec, which the catalog has. */
  spec: string;
}

/** The kinds of tokens that have prices, as llm-sdk names them. */
export const PRICES = [
  'input_cost_per_text_token',
  'input_cost_per_cached_text_token',
  'output_cost_per_text_token',
  'input_cost_per_audio_token',
  'input_cost_per_cached_audio_token',
  'output_cost_per_audio_token',
  'input_cost_per_image_token',
  'input_cost_per_cached_image_token',
  'output_cost_per_image_token',
] as const;

/** USD per token. */
export type Pricing = { [Price in (typeof PRICES)[number]]?: number };

/** What an MCP server gets of a run of the Runs API; `run_secrets` in the catalog has the values. */
export interface SharedWithServer {
  /** The name of the server. */
  server: string;
  /** The index of the headers for its requests, in `headers` of `run_secrets`. */
  headers?: number;
  /** Its calls have these parts of the run's context. */
  contextKeys?: string[];
}

/** A tool of the client, or all tools of an MCP server, by name; or all tools of a client's toolkit, by its index. */
export type ToolSource = { tool: string } | { server: string } | { toolkit: number };

export type AgentSpec = z.infer<typeof agentSpec> & {
  /** Requires `pause: "wait"`, of the delegates too. Not a part of the format: faces resolve names to specs. */
  delegates?: Delegate[];
  /** A turn ends with an error if a call has no result of its tool, or shares its id with another one of its message. */
  failsWithTools?: true;
  /** Questions of MCP servers to the user are cancelled. */
  declinesQuestions?: true;
  /** Names of MCP servers: a turn ends with an error, before its first model call, if one of them is unavailable. */
  requiredServers?: string[];
  /** The order of these tools for the model: after the server's own, before the client's tools that it lacks. */
  toolOrder?: ToolSource[];
  /** For agents of runs of the Runs API. */
  givenToServers?: SharedWithServer[];
  /** Output of the format `json_object` must be JSON. If unset, the model gets the format; the output is unchecked. */
  checksJson?: true;
  /** The prices of the model in the request of a run. Budgets use the price that the operator has set. */
  pricing?: Pricing;
  modelOptions?: ModelOptions;
  /** Follow the instructions and `client_tools`. Requires `pause: "wait"`, and turns that are not steered. */
  clientToolkits?: ClientToolkit[];
  /** The provider may search the web for the root agent. */
  webSearch?: WebSearch;
  /** How long a turn that waits may wait for the answers to one pause, before it ends with an error. */
  actionSeconds?: number;
  /** The limit of a turn, if it is lower than that of the server. */
  turnSeconds?: number;
  /** The calls of a message run one after the other. */
  callsInSequence?: true;
  /** The request of a run declares that its model takes no images: its client may not give it any. */
  takesNoImages?: true;
  /**
   * A message that is cancelled or fails keeps the calls whose arguments are complete, as cancelled ones. A message
   * that is cut off at the limit of output tokens is one like any other.
   */
  keepsCutOffCalls?: true;
};
export type DecisionPolicy = z.infer<typeof decisionPolicy>;
export type SpecApprovers = z.infer<typeof approvers>;
export type McpServer = z.infer<typeof mcpServer>;
export type ModelParams = z.infer<typeof modelParams>;

/** The names of an agent's models, in the order in which they are tried; `first` replaces the first one. */
export function modelNames({ model }: AgentSpec, first = model.name): string[] {
  return [first, ...(model.fallbacks ?? [])];
}

/** The limit of model calls: of an agent's turn, or of its thread if it is a sub-agent. */
export function iterationLimit({ config }: AgentSpec): number {
  return config?.iteration_limit ?? 100;
}

/** Whether the last model call that an agent's limit allows has to return its output. */
export function answersAtLimit({ config }: AgentSpec): boolean {
  return config?.on_limit === 'answer';
}

/** Whether an agent may start sub-agents that are not registered. */
export function startsDynamic({ config }: AgentSpec): boolean {
  return config?.dynamic_sub_agents?.enabled !== false;
}

/** Whether an agent's model gets large results in part, and a tool to read the rest. */
export function cutsResults({ config }: AgentSpec): boolean {
  return config?.context_management?.large_tool_response?.enabled !== false;
}

/** An agent without unknown keys, so that it can be sent again. Some stored agents have such keys in `config`. */
export function inFormat(spec: AgentSpec): z.infer<typeof agentSpec> {
  const known = structuredClone(spec);
  for (const issue of agentSpec.safeParse(spec).error?.issues ?? []) {
    if (issue.code !== 'unrecognized_keys') continue;
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- an object has the unknown keys
    const part = issue.path.reduce<object>((value, key) => Reflect.get(value, key) as object, known);
    for (const key of issue.keys) Reflect.deleteProperty(part, key);
  }
  return known;
}

/** The agents to which an agent delegates. Only a turn that waits can wait for them. */
export function delegatesOf({ delegates = [], config }: AgentSpec): Delegate[] {
  return config?.pause === 'wait' ? delegates : [];
}

/** Whether an agent names MCP servers, and its turns connect to them. */
export function hasServers({ mcp_servers: servers }: AgentSpec): boolean {
  return (servers ?? []).length > 0;
}
