import type { ToolScope } from '../core/history.ts';
import type { ApprovalPolicy, ToolCall } from '../core/records/calls.ts';
import type { KernelCatalog } from '../catalog/catalog.ts';
import type { EditCheck, EditProblem } from '../engine/edited-arguments.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import { parseArguments } from './arguments.ts';
import { decideCall, type CallRules } from './decision-policy.ts';
import type { ToolsetLoader } from './toolset-loader.ts';
import { argumentSchema, type AgentTool, type Toolset } from './toolset.ts';

/** How long the servers of an agent may take to list their tools, so that an edit can be validated. */
const LIST_TIMEOUT_MS = 10_000;

interface EditCheckSources {
  catalog: { agents: Pick<KernelCatalog['agents'], 'spec'> };
  toolsets: Pick<ToolsetLoader, 'load'>;
  /** The rules on the calls of an agent, beside its policies. */
  rules: (spec: AgentSpec, scope: Pick<ToolScope, 'sessionId'>) => Promise<CallRules | undefined>;
}

/** Makes the check of edits for the API; the activity that runs a call repeats it. */
export function createEditCheck({ catalog, toolsets, rules }: EditCheckSources): EditCheck {
  return async ({ specHash, call, ...scope }) => {
    const spec = await catalog.agents.spec(specHash);
    const timeout = AbortSignal.timeout(LIST_TIMEOUT_MS);
    try {
      const toolset = await toolsets.load(spec, scope, timeout);
      return editProblem(spec, toolset, call, await rules(spec, scope));
    } catch (error) {
      if (!timeout.aborted) throw error;
      return { code: 'unavailable', message: 'the MCP servers of the agent do not list their tools: try again' };
    }
  };
}

/**
 * Why a call must not run with the arguments that a person has edited: they do not fit the tool's current schema, or
 * the policy that applies to them is not the one that the decision was made by. Otherwise an edit would be a way around
 * a stricter policy.
 */
export function editProblem(
  spec: AgentSpec,
  { tools, unavailable }: Pick<Toolset, 'tools' | 'unavailable'>,
  call: ToolCall,
  rules?: CallRules,
): EditProblem | undefined {
  const tool = [...tools.values()].find((one) => isToolOf(one, call));
  if (!tool) {
    const missing = unavailable.find(({ server }) => call.info.type === 'mcp' && server === call.info.serverName);
    const reason = missing ? `${missing.server}: ${missing.reason}` : 'the tool is no longer offered';
    return {
      code: missing ? 'unavailable' : 'edit_not_allowed',
      message: `the edited arguments cannot be validated: ${reason}`,
    };
  }
  const parsed = parseArguments(argumentSchema(tool), call.arguments);
  if (!parsed.ok) return { code: 'invalid_arguments', message: parsed.message, pointer: parsed.pointer };
  const { decision, policy } = decideCall(spec, tool, parsed.value, rules);
  if (decision === 'allow' || (decision === 'ask' && policy?.id === policyOf(call)?.id)) return undefined;
  const message =
    decision === 'deny'
      ? "the agent's policy, or a rule, does not allow the call with these arguments"
      : 'another policy applies to the call with these arguments: deny it, and have the model call the tool again';
  return { code: 'edit_not_allowed', message };
}

function isToolOf({ info, run }: AgentTool, call: ToolCall): boolean {
  if (info.type === 'system' && call.info.type === 'system') {
    const mayEdit = run.to === 'server' ? run.inSandbox === true : 'approval' in run;
    return mayEdit && info.name === call.info.name;
  }
  if (info.type !== 'mcp' || call.info.type !== 'mcp') return false;
  return info.serverId === call.info.serverId && info.name === call.info.name;
}

function policyOf({ route }: ToolCall): ApprovalPolicy | undefined {
  return route.to === 'server' ? route.policy : undefined;
}
