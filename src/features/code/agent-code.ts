import { invalidAgent, type AgentProblem } from '../../engine/agent-check.ts';
import type { AgentSpec } from '../../spec/agent-spec.ts';
import { codeActionsOf, type CodeActions, type KernelLimits } from '../../spec/code-actions.ts';
import { KERNEL_LIMITS } from '../../spec/code-actions-spec.ts';
import { isWithinMaximum, type NetworkMaximum } from '../../spec/host-pattern.ts';
import { referencesIn } from '../../spec/kernel-env.ts';
import { ruleProblem } from '../../spec/permission-rule.ts';
import { WORKSPACE_PATH_RULE, workspacePath } from '../../spec/workspace-path.ts';
import type { KernelAvailability } from './availability.ts';
import { NOT_PASSED } from './commands/command-environment.ts';
import { NO_NETWORK } from './kernel/wall.ts';

/** Variables that the sandbox sets. */
const OWN_VARIABLES =
  /^(?:HOME|TMPDIR|PYTHONPATH|PIP_PREFIX|PIP_NO_INPUT|PIP_DISABLE_PIP_VERSION_CHECK|PIP_BREAK_SYSTEM_PACKAGES)$/;

interface CodeServer {
  /** The current state: an environment is built while the server runs. */
  availability: KernelAvailability;
  /** The limits that the operator has set. */
  maxima: KernelLimits;
  /** The variables of kernel hosts that agents may refer to. */
  variables: readonly string[];
  /** The hosts that code may reach at most. */
  network: NetworkMaximum;
  /** Whether the server has a model for embeddings. */
  hasEmbeddings: boolean;
}

/** The first problem of an agent's code actions. An agent is accepted while the environment is being built. */
export function codeProblem(
  spec: AgentSpec,
  { availability, maxima, variables, network, hasEmbeddings }: CodeServer,
): AgentProblem | undefined {
  const contradiction = contradictionIn(spec) ?? callersProblem(spec);
  if (contradiction) return contradiction;
  const actions = codeActionsOf(spec);
  if (!actions) return undefined;
  return (
    missingFeature(spec, availability) ??
    searchProblem(actions, hasEmbeddings) ??
    limitProblem(spec, maxima) ??
    networkProblem(actions, { maximum: network, availability }) ??
    variablesProblem(actions, variables) ??
    permissionProblem(actions) ??
    pathProblem(spec) ??
    filesProblem(actions)
  );
}

function notAvailable(param: string, message: string): AgentProblem {
  return { code: 'feature_not_available', message, param };
}

function permissionProblem({ permissions }: CodeActions): AgentProblem | undefined {
  for (const [i, rule] of permissions.entries()) {
    const message = 'preset' in rule ? undefined : ruleProblem(rule);
    if (message !== undefined) return invalidAgent(`code_actions.permissions.${i}`, message);
  }
  return undefined;
}

function contradictionIn({ code_actions: block, config }: AgentSpec): AgentProblem | undefined {
  const sandbox = config?.sandbox?.enabled;
  if (!block || typeof sandbox !== 'boolean' || sandbox === (block.enabled ?? true)) return undefined;
  const message = 'config.sandbox.enabled and code_actions contradict each other: omit one of them';
  return invalidAgent('config.sandbox.enabled', message);
}

function callersProblem(spec: AgentSpec): AgentProblem | undefined {
  const servers = spec.mcp_servers ?? [];
  const wrong = servers.findIndex(({ allowed_callers: callers }) => {
    return callers && (callers.length === 0 || (callers.includes('code') && !codeActionsOf(spec)));
  });
  if (wrong < 0) return undefined;
  const message =
    servers[wrong]?.allowed_callers?.length === 0
      ? 'nobody may call the tools of this server: name "model", "code" or both'
      : 'code may call the tools of a server only in an agent with code_actions';
  return invalidAgent(`mcp_servers.${wrong}.allowed_callers`, message);
}

function missingFeature(
  { code_actions: block, config }: AgentSpec,
  availability: KernelAvailability,
): AgentProblem | undefined {
  if (availability.state === 'failed') {
    const message = `code actions are not available on this server: ${availability.reason}`;
    return notAvailable(block ? 'code_actions' : 'config.sandbox', message);
  }
  if (!asksForNetwork(config?.sandbox?.network_policy)) return undefined;
  const message = 'a policy for the network is not available: name the hosts in code_actions.network.allow, or omit it';
  return notAvailable('config.sandbox.network_policy', message);
}

function searchProblem({ toolSearch }: CodeActions, hasEmbeddings: boolean): AgentProblem | undefined {
  if (toolSearch === 'keyword' || hasEmbeddings) return undefined;
  const message = 'the server has no model for embeddings (EVERTURN_EMBEDDING_MODEL): use "keyword", or omit it';
  return notAvailable('code_actions.tool_search', message);
}

/** Whether a policy of the public SDKs is set: code without the network would silently lack what it allows. */
function asksForNetwork(policy: unknown): boolean {
  return typeof policy === 'object' && policy !== null && Object.values(policy).some((value) => value !== null);
}

/** A limit above its maximum. A limit that the agent omits is the default, but at most the maximum. */
function limitProblem({ code_actions: block }: AgentSpec, maxima: KernelLimits): AgentProblem | undefined {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the keys of its type
  for (const limit of Object.keys(KERNEL_LIMITS) as (keyof KernelLimits)[]) {
    const given = block?.kernel?.[limit] ?? 0;
    if (given <= maxima[limit]) continue;
    const message = `${limit} is ${given}, and the operator's maximum is ${maxima[limit]}: use at most that`;
    return invalidAgent(`code_actions.kernel.${limit}`, message);
  }
  return undefined;
}

/** Checks that the operator permits the hosts for code, and that the wall around code can restrict it to them. */
function networkProblem(
  { network: { allow } }: CodeActions,
  { maximum, availability }: { maximum: NetworkMaximum; availability: KernelAvailability },
): AgentProblem | undefined {
  if (allow.length === 0) return undefined;
  const param = 'code_actions.network.allow';
  const isOff = maximum !== 'any' && maximum.length === 0;
  const isOpen = availability.state === 'ready' && !availability.limitsNetwork;
  const off = 'the operator of this server gives code no network (EVERTURN_KERNEL_NETWORK): omit network.allow';
  if (isOff || isOpen) return notAvailable(param, isOff ? off : NO_NETWORK);
  const wrong = allow.findIndex((pattern) => !isWithinMaximum(pattern, maximum));
  if (wrong < 0) return undefined;
  const message = `${allow[wrong]} is not within the hosts that the operator of this server lists in EVERTURN_KERNEL_NETWORK`;
  return invalidAgent(`${param}.${wrong}`, message);
}

function variablesProblem({ kernel }: CodeActions, listed: readonly string[]): AgentProblem | undefined {
  for (const [name, value] of Object.entries(kernel.env)) {
    const problem = (message: string) => invalidAgent(`code_actions.kernel.env.${name}`, message);
    if (OWN_VARIABLES.test(name)) return problem(`${name} is the sandbox's own: omit it`);
    if (NOT_PASSED.test(name)) return problem(`${name} would let commands run other programs than are shown: omit it`);
    if (value.includes('\0')) return problem('a variable has no NUL character');
    if (value.split('${').length - 1 > referencesIn(value).length)
      return problem('`${` begins a reference to a variable of the kernel host, such as `${TOKEN}`');
    const unlisted = referencesIn(value).find((one) => !listed.includes(one));
    if (unlisted !== undefined)
      return problem(`the operator of this server does not list ${unlisted} in EVERTURN_KERNEL_ENV`);
  }
  return undefined;
}

/** The first invalid path. JSON Schema cannot express the rules for paths, so the format accepts any text. */
function pathProblem({ code_actions: block }: AgentSpec): AgentProblem | undefined {
  const instructions = block?.workspace?.instructions_file ?? undefined;
  if (instructions !== undefined && workspacePath(instructions) === undefined)
    return invalidAgent('code_actions.workspace.instructions_file', WORKSPACE_PATH_RULE);
  const wrong = (block?.workspace?.files ?? []).findIndex(({ path }) => workspacePath(path) === undefined);
  if (wrong < 0) return undefined;
  return invalidAgent(`code_actions.workspace.files.${wrong}.path`, WORKSPACE_PATH_RULE);
}

function filesProblem({ workspace }: CodeActions): AgentProblem | undefined {
  const { files, max_bytes: maxBytes, max_files: maxFiles } = workspace;
  const param = 'code_actions.workspace.files';
  const paths = files.map(({ path }) => path);
  const taken = paths.findIndex((path, i) => paths.some((other, j) => j < i && areInTheWay(path, other)));
  if (taken >= 0)
    return invalidAgent(
      `${param}.${taken}`,
      `two files have the path ${paths[taken]}, or one is a folder of the other`,
    );
  const bytes = files.reduce((sum, { base64 }) => sum + Buffer.byteLength(base64, 'base64'), 0);
  if (files.length <= maxFiles && bytes <= maxBytes) return undefined;
  const limits = `${maxFiles} files with ${maxBytes} bytes`;
  return invalidAgent(param, `the workspace takes ${limits}, and has ${files.length} with ${bytes}`);
}

/** Whether two files conflict: they are the same, or one would be a folder that contains the other. */
function areInTheWay(path: string, other: string): boolean {
  return path === other || path.startsWith(`${other}/`) || other.startsWith(`${path}/`);
}
