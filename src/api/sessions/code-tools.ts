import { setImmediate as nextTurn } from 'node:timers/promises';
import { z } from 'zod';
import { authorizeSession } from '../../engine/access.ts';
import { ownerOf } from '../../engine/start-turn.ts';
import { codeRules } from '../../features/code/permissions/code-rules.ts';
import { matchingSavedTools } from '../../features/code/saved-tools/listed-saved-tools.ts';
import { savedToolsOf, type SavedToolAbout } from '../../features/code/saved-tools/saved-tool.ts';
import { listedTools, type ListedTool } from '../../features/code/tools/listed-tools.ts';
import type { ToolScope } from '../../core/history.ts';
import { sha256 } from '../../lib/hash.ts';
import type { AgentSpec } from '../../spec/agent-spec.ts';
import { mayAsk } from '../../tools/decision-policy.ts';
import { rankTools } from '../../tools/rank-tools.ts';
import { mayCall, type AgentTool } from '../../tools/toolset.ts';
import type { ApiContext } from '../http/context.ts';
import { ApiError } from '../http/errors.ts';
import { pageFrom, pageOf, pageQuery, positionOf } from '../http/pagination.ts';
import type { Route } from '../http/route.ts';
import { routesOf } from './route.ts';
import { codeTool, codeToolToResource, savedCodeToolToResource, type CodeToolResource } from './wire/code-tools.ts';

const route = routesOf('Sandboxes');

/** How long the servers of an agent may take to list their tools. */
const LIST_TIMEOUT_MS = 10_000;

const MAX_TEXT_LENGTH = 1_000;

/** The position of a page: how many tools are before it. */
const pagePosition = z.object({ list: z.string(), skipped: z.int().min(0) });

const exampleTool: CodeToolResource = {
  source: 'mcptools',
  category: 'orders',
  name: 'create_order',
  original_name: 'create-order',
  import: 'from mcptools.orders.create_order import run, Params',
  signature: 'run(Params(sku: str, count: int | None = 1)) -> Result',
  description: 'Creates an order.',
  path: '/tools/mcptools/orders/create_order.py',
  has_result_schema: true,
  asks: true,
};

/** The tools that the code of an agent may call. */
export function codeToolRoutes({ catalog, toolsets }: ApiContext): Route[] {
  return [
    route('get', '/v1/agents/sessions/:session_id/code-tools', {
      id: 'listCodeTools',
      summary: 'The tools that the code of a session or draft may call: the saved ones, then those of servers',
      description:
        'By category and name. Those of servers are as the MCP servers of its agent offer them now. A server that cannot be reached, or that its user is not ' +
        'signed in to, has none.',
      query: pageQuery({ defaultLimit: 100, maxLimit: 1_000 }).extend({
        category: z.string().max(MAX_TEXT_LENGTH).optional().describe('only its tools'),
        query: z.string().min(1).max(MAX_TEXT_LENGTH).optional().describe('only those that match, the best first'),
        source: z.enum(['true', 'false']).default('false').describe('with their sources'),
      }),
      response: pageOf(codeTool, [exampleTool], 100),
      handler: async ({ params, query: { limit, page_token: token, ...query }, caller }) => {
        const session = await authorizeSession(catalog, params.session_id, caller, 'read');
        const list = sha256(JSON.stringify([session.id, query]));
        const { skipped } = positionOf(pagePosition, token, { list }) ?? { skipped: 0 };
        const spec = await catalog.agents.spec(session.spec_hash);
        const scope = { sessionId: session.id, owner: ownerOf(session, caller) };
        const savedOwner = savedToolsOf(session, spec);
        const savedTools = savedOwner ? await catalog.savedTools.list(savedOwner) : [];
        const found = [
          ...(await matchingSaved(savedTools, query)),
          ...(await matching(listedTools(await toolsOf(spec, scope), savedTools), query)),
        ];
        const rules = await codeRules(catalog, spec, scope);
        const withSource = query.source === 'true';
        async function* listing() {
          for (const [i, one] of found.entries().drop(skipped)) {
            // Each in its own turn of the event loop: the schemas of a hostile server take milliseconds.
            await nextTurn();
            const position = { list, skipped: i };
            if ('version' in one) {
              const code = withSource && savedOwner ? await catalog.savedTools.get(savedOwner, one) : undefined;
              yield { item: savedCodeToolToResource(one, code), position };
            } else {
              const asks = mayAsk(spec, one.tool.agentTool, rules);
              yield { item: codeToolToResource(one, { asks, withSource }), position };
            }
          }
        }
        return pageFrom(listing(), limit);
      },
    }),
  ];

  async function toolsOf(spec: AgentSpec, scope: ToolScope): Promise<Iterable<AgentTool>> {
    if (!spec.mcp_servers?.some((server) => mayCall('code', server))) return [];
    const timeout = AbortSignal.timeout(LIST_TIMEOUT_MS);
    try {
      const { tools } = await toolsets.load(spec, scope, timeout);
      return tools.values();
    } catch (error) {
      if (!timeout.aborted) throw error;
      throw new ApiError('unavailable', 'the MCP servers of the agent do not list their tools: try again');
    }
  }
}

interface Wanted {
  category?: string | undefined;
  query?: string | undefined;
}

async function matchingSaved(tools: readonly SavedToolAbout[], { category, query }: Wanted): Promise<SavedToolAbout[]> {
  const inCategory = tools.filter((one) => category === undefined || one.category === category);
  return query === undefined ? inCategory : matchingSavedTools(inCategory, query);
}

async function matching(listed: readonly ListedTool[], { category, query }: Wanted): Promise<ListedTool[]> {
  const inCategory = listed.filter((one) => category === undefined || one.category === category);
  if (query === undefined) return inCategory;
  const byTool = new Map(inCategory.map((one) => [one.tool.agentTool, one]));
  const ranked = await rankTools([...byTool.keys()], query);
  return ranked.flatMap((tool) => byTool.get(tool) ?? []);
}
