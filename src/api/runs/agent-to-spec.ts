import { withoutVariables } from '../../agents/prompt.ts';
import { dynamicToolkits, withToolkits } from '../../features/run-support/client-toolkits.ts';
import { SYSTEM_TOOLS } from '../../features/features.ts';
import type { ServerSecrets } from '../../mcp/server-secrets.ts';
import {
  MAX_PROMPT_LENGTH,
  type AgentSpec,
  type ClientToolkit,
  type McpServer,
  type ModelOptions,
  type ToolSource,
  type WebSearch,
} from '../../spec/agent-spec.ts';
import { reservedNames } from '../../tools/system-tools.ts';
import { missingCapabilities, requireCapabilities } from './capabilities.ts';
import { type FieldPath, pathText, refusal, RUN_ERRORS } from './errors.ts';
import { ACTION_TIMEOUT_SECONDS } from './run-limits.ts';
import { fillTemplates } from './templates.ts';
import { secretsOf, type McpToolkit, type ToolkitServer } from './toolkit-secrets.ts';
import type { AgentChanges, AgentParams, Capability, FunctionTool, RefreshedToolkit } from './wire/agent-params.ts';

type ClientTool = NonNullable<AgentSpec['client_tools']>[number];

/** The agent of a run as the engine runs it. */
export interface RunAgent {
  spec: AgentSpec;
  /** The headers and context for its servers, which the spec does not contain. */
  secrets?: ServerSecrets;
  /** The path in the request for a path in the spec; undefined if the request does not contain that part. */
  pathOf: (param: string) => string | undefined;
  /** The capabilities that the model lacks according to the request. */
  missing: ReadonlySet<Capability>;
}

const MAX_TURNS = 10;

/** The efforts for budgets of reasoning below a number of tokens. */
const EFFORTS = [
  { effort: 'low', below: 8_192 },
  { effort: 'medium', below: 24_576 },
];

/** The most that an agent can have. */
const MAX_CLIENT_TOOLS = 128;

/** The agent that a request defines. @throws ApiError */
export function toSpec(params: AgentParams, context: unknown): RunAgent {
  return change({ model: { name: '' } }, params, { context, root: ['agent'] });
}

/** A registered agent with the changes of a request. @throws ApiError */
export function withParams(spec: AgentSpec, params: AgentChanges, context: unknown): RunAgent {
  // The variables of the agent are filled in first: they must not apply to the texts that the request adds.
  return change(withoutVariables(spec), params, { context, root: ['params'] });
}

interface ChangeOptions {
  context: unknown;
  /** The path of the params in the request. */
  root: FieldPath;
}

function change(base: AgentSpec, params: AgentChanges, { context, root }: ChangeOptions): RunAgent {
  const missing = missingCapabilities(params);
  const ownServers = base.mcp_servers ?? [];
  const { tools, toolkitTools, servers, clientToolkits, added } = readToolkits(params, ownServers, root);
  const instructions = [
    base.instructions ?? '',
    ...fillTemplates(listOf(params.instructions), {
      context,
      maxAdded: MAX_PROMPT_LENGTH,
      pathOf: (i) => [...root, 'instructions', ...(Array.isArray(params.instructions) ? [i] : [])],
    }),
  ];
  const { given, secrets } = secretsOf(servers, { context, root });
  const required = servers.filter(({ toolkit }) => toolkit.required !== false).map(({ server }) => server.name);
  // The agent's own tools come before the others.
  const own = [
    ...(base.client_tools ?? []).map(({ name }) => ({ tool: name })),
    ...ownServers.map(({ name }) => ({ server: name })),
  ];
  const options = optionsOf(params);
  const search = searchOf(params, root);
  const pricing = (typeof params.model === 'object' && params.model?.metadata?.pricing) || {};
  const format = formatOf(params.response_format);
  const { failsWithTools: _, ...rest } = base;
  const spec: AgentSpec = {
    ...rest,
    model: modelOf(base, params),
    instructions: instructions.filter((text) => text !== '').join('\n') || null,
    ...(required.length > 0 && { requiredServers: required }),
    ...(added.length > 0 && { toolOrder: [...own, ...added] }),
    ...(given.length > 0 && { givenToServers: given }),
    ...(Object.keys(pricing).length > 0 && { pricing }),
    ...(Object.keys(options).length > 0 && { modelOptions: options }),
    ...(search && { webSearch: search }),
    mcp_servers: [...ownServers, ...servers.map(({ server }) => server)],
    client_tools: [...(base.client_tools ?? []), ...tools.map(({ tool }) => tool)],
    ...(format && { response_format: format }),
    ...((format ?? base.response_format)?.type === 'json_object' && { checksJson: true }),
    config: configOf(base, params),
    keepsCutOffCalls: true,
    ...(params.on_tool_failure !== 'tell' && { failsWithTools: true }),
    declinesQuestions: true,
    ...(params.timeout_seconds && { turnSeconds: params.timeout_seconds }),
    ...(params.tool_execution === 'sequential' && { callsInSequence: true }),
    ...(missing.has('image_input') && { takesNoImages: true }),
    actionSeconds: params.action_timeout_seconds ?? ACTION_TIMEOUT_SECONDS,
  };
  const whole = withToolkits({ ...spec, clientToolkits });
  requireShortPrompt(whole, [...root, 'instructions']);
  requireUsableTools({ ...spec, client_tools: base.client_tools }, [...tools, ...toolkitTools], [...root, 'tools']);
  const { clientToolkits: _toolkits, ...resolved } = whole;
  requireCapabilities(whole, params, { missing, root });
  return {
    spec: dynamicToolkits(whole).length > 0 ? { ...spec, clientToolkits } : resolved,
    ...(secrets && { secrets }),
    missing,
    pathOf: (param) => {
      const path = pathInParams(params, param, servers, ownServers.length);
      return path && pathText([...root, ...path]);
    },
  };
}

function modelOf({ model: own }: AgentSpec, params: AgentChanges): AgentSpec['model'] {
  const { temperature, top_p: topP, top_k: topK, max_tokens: maxTokens, reasoning } = params;
  const model = typeof params.model === 'string' ? { name: params.model } : params.model;
  return {
    ...own,
    ...(model && { name: model.name }),
    params: {
      ...own.params,
      ...(model?.params && withoutNulls(model.params)),
      ...withoutNulls({ temperature, top_p: topP, top_k: topK, max_tokens: maxTokens }),
      ...(reasoning && { reasoning_effort: effortOf(reasoning) }),
    },
  };
}

/** All models write text, so only requests for images and audio need options. */
function mediaOf({ modalities, audio }: AgentChanges): Pick<ModelOptions, 'modalities' | 'audio' | 'image_output'> {
  const draws = modalities?.includes('image') === true;
  const speaks = modalities?.includes('audio') === true;
  return {
    ...(draws && { image_output: true }),
    ...(speaks && { modalities: modalities.filter((one) => one !== 'image') }),
    // `linear16` is the only format that OpenAI streams.
    ...((speaks || audio) && {
      audio: { format: audio?.format ?? 'linear16', ...(audio?.voice && { voice: audio.voice }) },
    }),
  };
}

/** The effort of reasoning for its budget: the highest one without a budget. */
function effortOf({ enabled, budget_tokens: budget }: NonNullable<AgentChanges['reasoning']>): string {
  if (!enabled) return 'none';
  return EFFORTS.find(({ below }) => (budget ?? Infinity) < below)?.effort ?? 'high';
}

function optionsOf(params: AgentChanges): ModelOptions {
  const { presence_penalty, frequency_penalty, seed, metadata, tool_choice: choice, reasoning } = params;
  const tool_choice = choice?.type === 'tool' ? { tool: choice.tool_name } : choice?.type;
  const reasoning_tokens = reasoning?.enabled ? reasoning.budget_tokens : undefined;
  const options = { presence_penalty, frequency_penalty, seed, metadata, tool_choice, reasoning_tokens };
  return withoutNulls({ ...options, ...mediaOf(params) });
}

/** The web search of the provider. @throws ApiError if there are two */
function searchOf({ tools }: AgentChanges, root: FieldPath): WebSearch | undefined {
  const [first, second] = (tools ?? []).flatMap((tool, i) => (tool.type === 'web_search' ? [{ tool, i }] : []));
  if (second)
    throw refusal(RUN_ERRORS.duplicate_tool_name, [...root, 'tools', second.i], 'the run has another web_search');
  if (!first) return undefined;
  const { allowed_domains, max_uses, user_location: location } = first.tool;
  return withoutNulls({ allowed_domains, max_uses, user_location: location && withoutNulls(location) });
}

/**
 * A run waits for its client, and ends with an error at its limit. An unknown outcome ends the run, or is reported to
 * the model; no person is asked. A run has only the system tools that its agent enables.
 */
function configOf({ config }: AgentSpec, { max_turns: maxTurns }: AgentChanges): AgentSpec['config'] {
  const asked = (toggle: { enabled?: boolean | null | undefined } | null | undefined) =>
    toggle?.enabled === true ? toggle : { enabled: false };
  return {
    ...config,
    pause: 'wait',
    on_limit: 'fail',
    on_unknown: 'tell',
    iteration_limit: maxTurns ?? config?.iteration_limit ?? MAX_TURNS,
    ask_user_questions: asked(config?.ask_user_questions),
    dynamic_sub_agents: asked(config?.dynamic_sub_agents),
    generative_ui: asked(config?.generative_ui),
  };
}

function formatOf(format: AgentChanges['response_format']): AgentSpec['response_format'] {
  if (format?.type !== 'json') return format;
  const { name, description, schema } = format;
  if (!schema) return { type: 'json_object' };
  return { type: 'json_schema', json_schema: { name, schema, ...(description && { description }) } };
}

/** A tool and its path in the request. */
interface AddedTool {
  tool: ClientTool;
  fieldPath: FieldPath;
}

/**
 * The tools, the client toolkits with their tools, and the servers of the MCP toolkits that a request adds. `added` names
 * all of them in the order in which the model is offered them: the tools, then the toolkits.
 */
function readToolkits({ tools, toolkits }: AgentChanges, ownServers: McpServer[], root: FieldPath) {
  const servers: ToolkitServer[] = [];
  const toolkitTools: AddedTool[] = [];
  const clientToolkits: ClientToolkit[] = [];
  const functions = (tools ?? []).flatMap((tool, i): AddedTool[] =>
    tool.type === 'web_search' ? [] : [{ tool: toClientTool(tool), fieldPath: [...root, 'tools', i] }],
  );
  const added: ToolSource[] = functions.map(({ tool: { name } }) => ({ tool: name }));
  const named = (toolkits ?? []).flatMap((one) => (one.type === 'mcp' ? (one.server ?? one.name ?? []) : []));
  const taken = new Set([...ownServers.map(({ name }) => name), ...named]);
  for (const [i, toolkit] of (toolkits ?? []).entries()) {
    if (toolkit.type === 'mcp') {
      const server = toServer(toolkit, taken);
      taken.add(server.name);
      servers.push({ server, toolkit, index: i });
      added.push({ server: server.name });
      continue;
    }
    const fieldPath = [...root, 'toolkits', i];
    if (toolkit.dynamic && clientToolkits.some(({ name, isDynamic }) => isDynamic && name === toolkit.name)) {
      const message = `another dynamic toolkit is named ${toolkit.name}: they need unique names`;
      throw refusal('invalid_request', [...fieldPath, 'name'], message);
    }
    added.push({ toolkit: clientToolkits.length });
    clientToolkits.push({ ...toClientToolkit(toolkit), ...(toolkit.dynamic && { isDynamic: true }) });
    toolkitTools.push(...addedTools(toolkit, fieldPath));
  }
  return { tools: functions, toolkitTools, clientToolkits, servers, added };
}

export function toClientToolkit({ name, system_prompt: prompt, tools }: RefreshedToolkit): ClientToolkit {
  return { name, ...(prompt && { system_prompt: prompt }), tools: tools.map(toClientTool) };
}

/** The tools of a toolkit, with their paths. */
export function addedTools({ tools }: RefreshedToolkit, fieldPath: FieldPath): AddedTool[] {
  return tools.map((tool, j) => ({ tool: toClientTool(tool), fieldPath: [...fieldPath, 'tools', j] }));
}

function toClientTool({ name, description, parameters }: FunctionTool): ClientTool {
  return { name, description, input_schema: parameters };
}

function toServer(toolkit: McpToolkit, taken: ReadonlySet<string>): McpServer {
  const { server, url, name, enable_tools, disable_tools, require_approval_for_tools: approval } = toolkit;
  const selected = { ...withoutNulls({ enable_tools, disable_tools }), require_approval_for_tools: approval ?? [] };
  if (url) return { type: 'inline', name: name ?? freeName(url, taken), url, ...selected };
  return { type: 'truefoundry-mcp-registry', name: server ?? '', ...selected };
}

/** A name for a server: its host, in the letters that may precede the name of a tool. */
function freeName(url: string, taken: ReadonlySet<string>): string {
  const host = new URL(url).hostname
    .replaceAll(/[^a-z0-9]+/gi, '-')
    .replaceAll(/^-|-$/g, '')
    .slice(0, 28);
  let name = host;
  for (let n = 2; taken.has(name); n++) name = `${host}-${n}`;
  return name;
}

/** Checks that an agent can have these tools of a client beside its own. @throws ApiError */
export function requireUsableTools(spec: AgentSpec, tools: AddedTool[], fieldPath: FieldPath): void {
  const own = spec.client_tools ?? [];
  if (own.length + tools.length > MAX_CLIENT_TOOLS) {
    const message = `an agent can have at most ${MAX_CLIENT_TOOLS} tools of its client`;
    throw refusal('invalid_request', fieldPath, message);
  }
  const names = new Set([...reservedNames(spec, SYSTEM_TOOLS), ...own.map(({ name }) => name)]);
  for (const { tool, fieldPath: at } of tools) {
    const message = `another tool of the run is named ${tool.name}: tools need unique names`;
    if (names.has(tool.name)) throw refusal(RUN_ERRORS.duplicate_tool_name, [...at, 'name'], message);
    names.add(tool.name);
  }
}

/** Checks the instructions of an agent with the prompts of its toolkits. @throws ApiError */
export function requireShortPrompt({ instructions }: AgentSpec, fieldPath: FieldPath): void {
  if ((instructions ?? '').length <= MAX_PROMPT_LENGTH) return;
  const message = `the prompt has more than ${MAX_PROMPT_LENGTH} characters, with those of all toolkits`;
  throw refusal('invalid_request', fieldPath, message);
}

const OPTION_PARAMS: Record<string, string> = { reasoning_tokens: 'reasoning', image_output: 'modalities' };

/** The path in the params for a path in the spec, in which the servers of toolkits follow `ownServers` others. */
function pathInParams(
  params: AgentChanges,
  param: string,
  servers: readonly ToolkitServer[],
  ownServers: number,
): FieldPath | undefined {
  const [field, index = '', inner] = param.split('.');
  switch (field) {
    case 'model':
    case 'response_format':
      return params[field] ? [field] : undefined;
    case 'modelOptions':
      return [OPTION_PARAMS[index] ?? index];
    case 'webSearch': {
      const tool = (params.tools ?? []).findIndex(({ type }) => type === 'web_search');
      return ['tools', tool, ...(index ? [index] : [])];
    }
    case 'client_tools':
      return ['tools'];
    case 'mcp_servers': {
      const server = servers[Number.parseInt(index, 10) - ownServers];
      if (!server) return undefined;
      const named = inner === 'name' && server.server.type !== 'inline' ? 'server' : inner;
      return ['toolkits', server.index, ...(named === undefined ? [] : [named])];
    }
    default:
      return undefined;
  }
}

function listOf(texts: string | string[] | null | undefined): string[] {
  if (texts === null || texts === undefined) return [];
  return typeof texts === 'string' ? [texts] : texts;
}

function withoutNulls<T extends object>(value: T): { [K in keyof T]?: NonNullable<T[K]> } {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the same fields, without those that are unset
  return Object.fromEntries(Object.entries(value).filter(([, one]) => one !== null && one !== undefined)) as never;
}
