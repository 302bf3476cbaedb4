import type { CallOrder } from '../core/call-order.ts';
import { toolKey } from '../core/transcript.ts';
import type { FoundServers, FoundTool, McpInitialized, ToolInfo } from '../core/records.ts';
import type { SignInNeed } from '../mcp/sign-in-required.ts';
import type { OfferedTool } from '../models/provider.ts';
import type { Annotation } from './selectors.ts';

/** The server runs the calls; `approval`: after an approval, which with `isFloor` the operator requires. */
interface ServerRun {
  to: 'server';
  effect: 'retry' | 'once';
  approval: boolean;
  isFloor?: true;
  order?: CallOrder;
}

/** A tool of an agent, and who runs its calls. */
export interface AgentTool extends OfferedTool {
  info: ToolInfo;
  run: { to: 'client' } | { to: 'thread' } | { to: 'session' } | { to: 'conversation' } | ServerRun;
  /** The class of an MCP tool by its annotations: see `selectTools`. */
  annotation?: Annotation;
  /** Its calls may begin before their message is recorded: see `StepsAhead`. */
  beginsAhead?: true;
  /** The schema of the arguments as the server lists it, if models are offered another one. */
  listedSchema?: object;
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
  /** What MCP servers say about the use of their tools. */
  instructions?: { server: string; text: string }[];
}

/** What the record of an agent's servers says. Those that require a sign-in have a record of their own. */
export function foundServers({ servers, unavailable }: Pick<Toolset, 'servers' | 'unavailable'>): FoundServers {
  const missing = unavailable.flatMap(({ server: name, reason, signIn }) => (signIn ? [] : [{ name, reason }]));
  return { servers, ...(missing.length > 0 && { unavailable: missing }) };
}

/**
 * The tools that a model is offered after it has found `found`: all that are not deferred, then the found ones. A tool
 * that cannot be used yet is not offered: `uses` says what the thread may start, delegate and read.
 */
export function offeredTools(
  { tools }: Toolset,
  found: FoundTool[],
  uses: { mayStart: number; mayDelegate: boolean; mayRead: boolean },
): AgentTool[] {
  const isOffered = ({ run }: AgentTool): boolean => {
    switch (run.to) {
      case 'thread':
        return uses.mayStart > 0;
      case 'session':
        return uses.mayDelegate;
      case 'conversation':
        return uses.mayRead;
      case 'client':
      case 'server':
        return true;
    }
  };
  const all = [...tools.values()].filter(isOffered);
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
