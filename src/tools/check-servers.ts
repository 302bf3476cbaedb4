import type { ToolScope } from '../core/history.ts';
import type { Tool } from '@modelcontextprotocol/client';
import { KeyedSemaphore } from '../lib/keyed-semaphore.ts';
import { McpPool, McpUnavailableError, type McpPoolOptions, type McpServerTools } from '../mcp/pool.ts';
import type { McpRegistry } from '../mcp/registry.ts';
import { approvalFloor } from '../mcp/server-policy.ts';
import type { McpServer } from '../spec/agent-spec.ts';
import { isListed, selectTools, type Annotation } from './selectors.ts';

/** What a registered server offers, or why it cannot be used. */
export interface CheckedServer {
  name: string;
  /** One line without secrets; null if the server can be used. */
  error: string | null;
  /** Until its tools were listed, or it failed. */
  seconds: number;
  /** Null if the server cannot be used; so is `protocol`, the version that both sides speak. */
  transport: McpServerTools['transport'] | null;
  protocol: string | null;
  tools: CheckedTool[];
  /** What was left out or repaired of its list of tools: one line each. */
  warnings: string[];
}

interface CheckedTool {
  name: string;
  /** How its annotations are read; see `selectTools`. */
  annotation: Annotation;
  /**
   * What happens to a call of an agent that sets no approvals: it asks a person, it runs, or it is `closed`, because the
   * operator allows the tool to no agent.
   */
  use: 'ask' | 'run' | 'closed';
}

interface CheckOptions {
  registry: Pick<McpRegistry, 'resolve' | 'policy'>;
  pool: McpPoolOptions;
  /** Whose sign-ins are used. */
  subjectId: string;
  signal: AbortSignal;
  /** Called for each server as soon as it was checked. */
  onChecked?: (server: CheckedServer) => void;
}

/** Each may be a program to start: more at once would slow each other down. */
const AT_ONCE = 4;

/**
 * Connects to registered servers, over connections of its own that are closed at the end, and lists what they offer to an
 * agent that an admin has written.
 * @throws the reason of the signal
 */
export async function checkServers(names: readonly string[], options: CheckOptions): Promise<CheckedServer[]> {
  const pool = checkingPool(options.pool);
  const places = new KeyedSemaphore(AT_ONCE);
  const check = async (name: string): Promise<CheckedServer> => {
    options.signal.throwIfAborted();
    const checked = await checkServer(name, pool, options);
    options.onChecked?.(checked);
    return checked;
  };
  try {
    return await Promise.all(names.map((name) => places.run('', () => check(name))));
  } finally {
    await pool.close();
  }
}

/** The connections of a check, which ends them. */
export function checkingPool(options: McpPoolOptions): McpPool {
  // A program that is being installed is to be listed, and ending it early would spoil its installation.
  return new McpPool({ ...options, firstWaitMs: Infinity });
}

/** For whom a check connects to a server: as a turn of an agent that an admin has written. */
export function checkScope(server: string, subjectId: string): ToolScope {
  // No session has an id of this form.
  return { sessionId: `check ${server}`, owner: { subjectId, draftRoles: null } };
}

async function checkServer(
  name: string,
  pool: McpPool,
  { registry, subjectId, signal }: CheckOptions,
): Promise<CheckedServer> {
  const server: McpServer = { type: 'truefoundry-mcp-registry', name };
  const endpoint = registry.resolve(server);
  if (!endpoint) throw new TypeError(`not a registered MCP server: ${name}`);
  const scope = checkScope(name, subjectId);
  const begun = performance.now();
  const end = (result: Omit<CheckedServer, 'name' | 'seconds'>): CheckedServer => {
    const seconds = Math.round(performance.now() - begun) / 1000;
    return { name, seconds, ...result };
  };
  try {
    const offered = await pool.tools(endpoint, scope, signal);
    const { transport, protocol, toolWarnings } = offered;
    const policy = registry.policy(server);
    const floor = approvalFloor(policy, scope.owner);
    const tools = selectTools(server, offered.tools, { floor }).map(({ tool, approval, annotation }): CheckedTool => ({
      name: tool.name,
      annotation,
      use: useOf(tool, policy.tools, approval),
    }));
    return end({ error: null, transport, protocol, tools, warnings: [...toolWarnings] });
  } catch (error) {
    if (!(error instanceof McpUnavailableError)) throw error;
    return end({ error: error.reason, transport: null, protocol: null, tools: [], warnings: [] });
  }
}

function useOf(tool: Tool, allowed: readonly string[], asks: boolean): CheckedTool['use'] {
  if (!isListed(tool, allowed)) return 'closed';
  return asks ? 'ask' : 'run';
}
