import type { CallOrder } from '../core/call-order.ts';
import { toolKey } from '../core/transcript.ts';
import type { ToolInfo } from '../core/records/calls.ts';
import type { FoundTool } from '../core/records/results.ts';
import type { FoundServers, McpInitialized } from '../core/records/servers.ts';
import type { SignInNeed } from '../mcp/sign-in-required.ts';
import type { OfferedTool } from '../models/provider.ts';
import type { McpServer } from '../spec/agent-spec.ts';
import type { Annotation } from './selectors.ts';
import type { RoutableCall, RoutedCall, ToolUser } from './system-tool.ts';

/** What happens to calls that no policy and no rule decides. */
interface DefaultDecision {
  /** They run after an approval, which with `isFloor` the operator requires. */
  approval: boolean;
  isFloor?: true;
  /** No call runs, even if a policy of the agent allows it. */
  isDenied?: true;
}

/** The server runs the calls. */
export interface ServerRun extends DefaultDecision {
  to: 'server';
  effect: 'retry' | 'once';
  order?: CallOrder;
  /** Calls run on the host of the session's sandbox. */
  inSandbox?: true;
}

/**
 * The activity that receives a call routes it: see `SystemTool`. With an `approval`, calls are decided, and start tasks when
 * they run.
 */
interface RouteRun extends Partial<DefaultDecision> {
  to: 'route';
  isOffered: (user: ToolUser) => boolean;
  route: (call: RoutableCall) => Promise<RoutedCall> | RoutedCall;
}

/** `code`: the cells of an agent that acts in code. */
export type ToolCaller = 'model' | 'code';

/** A tool of an agent, and how its calls are run. */
export interface AgentTool extends OfferedTool {
  info: ToolInfo;
  run: { to: 'client' } | RouteRun | ServerRun;
  /** The class of an MCP tool by its annotations: see `selectTools`. */
  annotation?: Annotation;
  /** Who may call it; absent: the model alone. */
  callers?: readonly ToolCaller[];
  /** Its calls may begin before their message is recorded: see `StepsAhead`. */
  beginsAhead?: true;
  /** The schema of structured results, if the server lists one and code may call the tool. */
  resultSchema?: object;
  /** The schema of the arguments as the server lists it, if models are offered another one. */
  listedSchema?: object;
}

/** The tool, if such a caller may call it. */
export function calledBy<T extends Pick<AgentTool, 'callers'>>(caller: ToolCaller, tool: T | undefined): T | undefined {
  const { callers = ['model'] } = tool ?? {};
  return callers.includes(caller) ? tool : undefined;
}

/** Whether such a caller may call the tools of a server. */
export function mayCall(caller: ToolCaller, { allowed_callers: callers }: McpServer): boolean {
  return (callers ?? ['model']).includes(caller);
}

/** The schema by which arguments are checked: the server's own. */
export function argumentSchema({ parameters, listedSchema }: Pick<AgentTool, 'parameters' | 'listedSchema'>): object {
  return listedSchema ?? parameters;
}

/** The tools of an agent, as its servers currently offer them. */
export interface Toolset {
  /** By the name under which the model calls the tool. */
  tools: ReadonlyMap<string, AgentTool>;
  servers: McpInitialized['servers'];
  /** Servers whose tools cannot be offered, and why; `signIn` if the user has to sign in to them. */
  unavailable: { server: string; reason: string; signIn?: SignInNeed }[];
  /** The instructions of MCP servers for the use of their tools. */
  instructions?: { server: string; text: string }[];
}

/** The content of the record of an agent's servers. Servers that require a sign-in have a record of their own. */
export function foundServers({ servers, unavailable }: Pick<Toolset, 'servers' | 'unavailable'>): FoundServers {
  const missing = unavailable.flatMap(({ server: name, reason, signIn }) => (signIn ? [] : [{ name, reason }]));
  return { servers, ...(missing.length > 0 && { unavailable: missing }) };
}

/**
 * The tools that a model is offered after it has found `found`: all that are not deferred, then the found ones. A tool
 * that `user` cannot use yet is not offered.
 */
export function offeredTools({ tools }: Toolset, found: FoundTool[], user: ToolUser): AgentTool[] {
  const ofModel = [...tools.values()].filter((tool) => calledBy('model', tool));
  const all = ofModel.filter(({ run }) => run.to !== 'route' || run.isOffered(user));
  const deferred = new Map(all.filter(isDeferred).map((tool) => [keyOf(tool), tool]));
  const offered = found.map((one) => deferred.get(toolKey(one))).filter((tool) => tool !== undefined);
  return [...all.filter((tool) => !isDeferred(tool)), ...offered];
}

export function isDeferred({ info }: AgentTool): boolean {
  return info.type === 'mcp' && info.deferred === true;
}

function keyOf({ info }: AgentTool): string | undefined {
  return info.type === 'mcp' ? toolKey({ server: info.serverName, name: info.name }) : undefined;
}
