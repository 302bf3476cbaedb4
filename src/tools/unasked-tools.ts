import { KeyedSemaphore } from '../lib/keyed-semaphore.ts';
import { McpPool, type McpPoolOptions } from '../mcp/pool.ts';
import type { McpRegistry } from '../mcp/registry.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import { asksForTools } from '../spec/code-actions.ts';
import { unaskedWarnings } from './decision-policy.ts';
import { agentTools } from './mcp-tools.ts';

/** How long the inline servers of an agent are asked for their tools, in milliseconds. */
const MAX_ASKING_MS = 2_000;

/** For how many agents at once: each may have 50 servers. */
const MAX_ASKING = 4;
const asking = new KeyedSemaphore(MAX_ASKING);

/**
 * Connects to the inline servers of an agent, without anyone's sign-in and over connections that are closed at the end;
 * for at most four agents of the process at once.
 * @returns the warnings for servers that have responded within 2 s, the wait for other agents included, each with its
 *   path in the spec
 */
export async function unaskedTools(
  spec: AgentSpec,
  { registry, pool: options }: { registry: Pick<McpRegistry, 'resolve'>; pool: McpPoolOptions },
): Promise<string[]> {
  const servers = (spec.mcp_servers ?? []).map((server, i) => ({ server, place: `mcp_servers.${i}` }));
  const inline = servers.filter(({ server }) => server.type === 'inline');
  if (inline.length === 0 || asksForTools(spec)) return [];
  const signal = AbortSignal.timeout(MAX_ASKING_MS);
  return asking.run('', async () => {
    if (signal.aborted) return [];
    const pool = new McpPool(options);
    // No session has an id of this form.
    const scope = { sessionId: 'tools without approvals', owner: { subjectId: '', draftRoles: null } };
    try {
      const warnings = inline.map(async ({ server, place }) => {
        const endpoint = registry.resolve(server);
        if (!endpoint) return [];
        const tools = agentTools(server, await pool.tools(endpoint, scope, signal));
        return unaskedWarnings(spec, server, tools).map((warning) => `${place}: ${warning}`);
      });
      const settled = await Promise.allSettled(warnings);
      return settled.flatMap((one) => (one.status === 'fulfilled' ? one.value : []));
    } finally {
      await pool.close();
    }
  });
}
