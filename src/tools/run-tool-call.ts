import type { KernelCatalog } from '../catalog/catalog.ts';
import type { Config } from '../config.ts';
import type { CallToolInput } from '../core/history.ts';
import type { ToolCall } from '../core/records/calls.ts';
import { ownerOfCall } from '../core/work-owner.ts';
import type { CallOutcome } from '../mcp/call-outcome.ts';
import type { AskingCall } from '../mcp/call-rounds.ts';
import { retryWhileUnavailable } from '../engine/retry.ts';
import { editProblem } from './edit-problem.ts';
import type { RunOptions, ToolKinds } from './tool-kind.ts';
import type { Toolset } from './toolset.ts';
import type { ToolsetLoader } from './toolset-loader.ts';

/** What a tool call is run with. */
export interface ToolCallSources {
  catalog: { agents: Pick<KernelCatalog['agents'], 'spec'> };
  toolKinds: ToolKinds;
  toolsets: Pick<ToolsetLoader, 'load'>;
  config: Pick<Config, 'tool'>;
}

type ToolCallOptions = Pick<CallToolInput, 'sessionId' | 'owner' | 'specHash'> &
  Pick<RunOptions, 'operationId' | 'mayRepeat' | 'resumed' | 'reliesOn'> & {
    /** The arguments are not those that were validated when the model called the tool. */
    isEdited?: boolean;
  };

/** Runs a tool call. @throws only before the call was sent: see `ToolKind.run` */
export async function runToolCall(
  { catalog, toolKinds, toolsets, config }: ToolCallSources,
  call: ToolCall,
  { operationId, mayRepeat, resumed, reliesOn, specHash, isEdited, sessionId, owner }: ToolCallOptions,
  signal: AbortSignal,
): Promise<CallOutcome | AskingCall> {
  const scope = { sessionId, owner: ownerOfCall(owner, call) };
  const spec = await retryWhileUnavailable(() => catalog.agents.spec(specHash), signal);
  const loadToolset = () => toolsets.load(spec, scope, signal);
  if (isEdited && !resumed) {
    const toolset = await loadToolset();
    const needed = requiredSignIn(toolset, call);
    if (needed) return needed;
    const problem = editProblem(spec, toolset, call);
    if (problem) throw new Error(problem.message);
  }
  return toolKinds[call.info.type].run(call, {
    spec,
    scope,
    operationId,
    timeoutMs: config.tool.timeoutSeconds * 1000,
    signal,
    mayRepeat,
    resumed,
    reliesOn,
    loadToolset,
  });
}

/** The sign-in that the server of a call requires before its tools are known. */
function requiredSignIn({ unavailable }: Toolset, { info }: ToolCall): CallOutcome | undefined {
  const server = unavailable.find((one) => info.type === 'mcp' && one.server === info.serverName);
  if (!server?.signIn) return undefined;
  return { status: 'sign_in_required', message: `${server.server}: ${server.reason}`, signIn: server.signIn };
}
