import { z } from 'zod';
import { AUDIO_FORMATS } from '../../../core/audio-formats.ts';
import { isGiven } from '../../../lib/is-given.ts';
import {
  clientTool,
  modelParams,
  PRICES,
  prompt,
  responseFormat,
  selector,
  serverUrl,
} from '../../../spec/agent-spec.ts';
import { bounded, line } from '../../../spec/bounds.ts';
import { jsonObject } from './parts.ts';

/**
 * The agent of a run: the agent itself, or changes to a registered one. Unknown fields are rejected, since a run that
 * ignored them would not be the requested one. Null means unset.
 */

const MAX_TOOLS = 128;
export const MAX_TOOLKITS = 50;
const MAX_INSTRUCTIONS = 1_000;

/** In USD per token; the cost of any call stays a number that JSON can represent. */
const MAX_PRICE = 1_000;

const name = z.string().min(1).max(256);
const serverName = z.string().min(1).max(128);

const functionTool = z.strictObject({
  type: z.literal('function').nullish(),
  name: clientTool.shape.name,
  description: z.string().max(10_000),
  parameters: jsonObject.describe('JSON Schema of the arguments'),
});

const webSearch = z.strictObject({
  type: z.literal('web_search'),
  allowed_domains: bounded(z.array(name), 100).nullish(),
  max_uses: z.int().min(1).nullish(),
  user_location: z
    .strictObject({ city: name.nullish(), region: name.nullish(), country: name.nullish(), timezone: name.nullish() })
    .nullish(),
});

const credential = z.string().min(1).max(16_384);

const mcpToolkit = z
  .strictObject({
    type: z.literal('mcp'),
    server: serverName.nullish().describe('the name of a server that the operator has registered'),
    url: serverUrl.nullish().describe('instead of server'),
    name: serverName.nullish().describe('of a server with a url: precedes the names of its tools'),
    authorization: credential
      .nullish()
      .describe(
        'of all requests to the server; a bare token is prefixed with "Bearer ", and {{context.a.b}} is replaced by this part of the context',
      ),
    headers: bounded(z.record(z.string().min(1).max(256), credential), 50)
      .nullish()
      .describe('of all requests to a server with a url; {{context.a.b}} is replaced by this part of the context'),
    enable_tools: selector,
    disable_tools: selector,
    require_approval_for_tools: selector.describe(
      '"@all", "@write", "@destructive", "@unannotated" or tool names; default none',
    ),
    required: z.boolean().nullish(),
    context_keys: bounded(z.array(name), 100)
      .nullish()
      .describe('the keys of the context that calls of its tools have, in `_meta["io.everturn/context"]`'),
  })
  .superRefine(({ server, url, name, headers }, context) => {
    if (isGiven(server) === isGiven(url)) {
      context.addIssue({ code: 'custom', path: ['server'], message: 'give either server or url' });
    } else if (isGiven(server) && isGiven(name)) {
      context.addIssue({ code: 'custom', path: ['name'], message: 'a registered server has its own name' });
    } else if (isGiven(server) && Object.keys(headers ?? {}).length > 0) {
      const message = 'the headers of a registered server are those that the operator has set: give it a url instead';
      context.addIssue({ code: 'custom', path: ['headers'], message });
    }
  })
  .meta({ id: 'McpToolkit' });

const toolkit = {
  name: serverName,
  system_prompt: prompt.nullish(),
  tools: bounded(z.array(functionTool), MAX_TOOLS),
};

/** The content of a dynamic toolkit from now on. */
export const refreshedToolkit = z.strictObject(toolkit);

const clientToolkit = z
  .strictObject({
    type: z.literal('client'),
    ...toolkit,
    dynamic: z
      .boolean()
      .nullish()
      .describe('the client refreshes it before each model call after the first; default false'),
  })
  .meta({ id: 'ClientToolkit' });

const CAPABILITIES = [
  'text_input',
  'text_output',
  'image_input',
  'image_output',
  'audio_input',
  'audio_output',
  'function_calling',
  'structured_output',
  'citation',
  'reasoning',
] as const;

const model = z.union([
  name,
  z.strictObject({
    name,
    params: modelParams.nullish(),
    metadata: z
      .strictObject({
        pricing: z
          .partialRecord(z.enum(PRICES), z.number().min(0).max(MAX_PRICE))
          .nullish()
          .describe('USD per token, for the cost of the run; it precedes what the operator has set'),
        capabilities: z.partialRecord(z.enum(CAPABILITIES), z.boolean()).nullish(),
      })
      .nullish(),
  }),
]);

const jsonFormat = z.strictObject({
  type: z.literal('json'),
  name,
  description: z.string().max(10_000).nullish(),
  schema: jsonObject.nullish(),
});

const toolChoice = z.discriminatedUnion('type', [
  z.strictObject({ type: z.enum(['auto', 'none', 'required']) }),
  z.strictObject({ type: z.literal('tool'), tool_name: name }),
]);

const fields = {
  name: line({ min: 1, max: 128 }).nullish().describe('for lists and traces; default "agent"'),
  instructions: z
    .union([prompt, bounded(z.array(prompt), MAX_INSTRUCTIONS)])
    .nullish()
    .describe('joined by newlines; {{context.a.b}} is replaced by this part of the context'),
  tools: bounded(z.array(z.union([functionTool, webSearch])), MAX_TOOLS)
    .nullish()
    .describe('functions are run by the client, web_search by the provider of the model'),
  toolkits: bounded(z.array(z.discriminatedUnion('type', [mcpToolkit, clientToolkit])), MAX_TOOLKITS).nullish(),
  response_format: z.discriminatedUnion('type', [...responseFormat.options, jsonFormat]).nullish(),
  max_turns: z
    .int()
    .min(1)
    .max(10_000)
    .nullish()
    .describe('model calls of the run; default 10, or the iteration_limit of the registered agent'),
  temperature: z.number().nullish(),
  top_p: z.number().nullish(),
  top_k: z.number().nullish(),
  presence_penalty: z.number().nullish(),
  frequency_penalty: z.number().nullish(),
  modalities: bounded(z.array(z.enum(['text', 'image', 'audio'])), 3).nullish(),
  audio: z
    .strictObject({
      format: z.enum(AUDIO_FORMATS).nullish().describe('default linear16'),
      voice: name.nullish(),
      language: name.nullish().describe('not sent: no provider takes it'),
    })
    .nullish(),
  reasoning: z.strictObject({ enabled: z.boolean(), budget_tokens: z.int().min(0).nullish() }).nullish(),
  max_tokens: z.int().min(1).nullish(),
  seed: z.int().nullish(),
  metadata: bounded(z.record(name, z.string().max(512)), 16).nullish(),
  tool_choice: toolChoice.nullish(),
  tool_execution: z.enum(['parallel', 'sequential']).nullish(),
  on_tool_failure: z
    .enum(['fail', 'tell'])
    .nullish()
    .describe('what a call without a result does: fail, it ends the run (default); tell, the model is told'),
  action_timeout_seconds: z
    .int()
    .min(1)
    .max(2_592_000)
    .nullish()
    .describe('how long the run waits for the answers to one pause before it fails; default 86400'),
  timeout_seconds: z.int().min(1).max(86_400).nullish(),
};

/** The agent of a run. */
export const agentParams = z.strictObject({ ...fields, model }).meta({ id: 'AgentParams' });

/** Changes to a registered agent for a run. */
export const agentChanges = z.strictObject({ ...fields, model: model.nullish() }).meta({ id: 'AgentChanges' });

export type AgentParams = z.infer<typeof agentParams>;
export type AgentChanges = z.infer<typeof agentChanges>;
export type Capability = (typeof CAPABILITIES)[number];
export type Toolkit = NonNullable<AgentChanges['toolkits']>[number];
export type FunctionTool = z.infer<typeof functionTool>;
export type RefreshedToolkit = z.infer<typeof refreshedToolkit>;
