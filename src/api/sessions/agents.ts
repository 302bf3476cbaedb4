import { z } from 'zod';
import type { AgentWithSpec } from '../../catalog/agents.ts';
import type { AgentVersionRow } from '../../catalog/schema.ts';
import { checkNewAgent } from '../../engine/agent-check.ts';
import { SchemaBudget } from '../../engine/schema-budget.ts';
import { agentSpec, inFormat } from '../../spec/agent-spec.ts';
import { identifier } from '../../spec/bounds.ts';
import {
  agentResource,
  agentVersionResource,
  type AgentResource,
  type AgentVersionResource,
} from './wire/resources.ts';
import type { ApiContext } from '../http/context.ts';
import { disconnection } from '../http/disconnection.ts';
import { agentNotFound, ApiError } from '../http/errors.ts';
import { exampleAgent, exampleAgentVersion, exampleSpec } from './examples.ts';
import { order, pageOf, pageOfRows, pageQuery, positionOf } from '../http/pagination.ts';
import { dataOf, json, type Route } from '../http/route.ts';
import { requireAgent } from './require-agent.ts';
import { routesOf } from './route.ts';

const route = routesOf('Agents');

const NAME = /^[\p{L}\p{N}][\p{L}\p{N}._:@/ -]{0,127}$/u;

/** Paths of other resources under `/v1/agents`. */
const RESERVED = new Set(['sessions', 'draft-sessions', 'sandbox', 'mcp', 'actions']);

const LIMIT = 10;
const listQuery = pageQuery({ defaultLimit: LIMIT, maxLimit: 100 });
const agentsQuery = listQuery.extend({ order: order.default('asc').describe('by name') });
const agentPosition = z.object({ order, agent: z.string() });
const versionsQuery = listQuery.extend({ order: order.default('desc').describe('by version') });
const versionPosition = z.object({ order, versions_of: z.string(), version: z.int() });

const putQuery = z.object({
  check: z
    .enum(['true', 'false'])
    .default('false')
    .describe('true: try the models and MCP servers of the agent, which is stored even if one fails'),
});

/** The column has 32 bits. */
const MAX_VERSION = 2 ** 31 - 1;

const responseBody = dataOf(agentResource, exampleAgent);

/** `/v1/agents/{name}`: the registry of agents. */
export function agentRoutes({ catalog, agentCheck, tryAgent }: ApiContext): Route[] {
  return [
    route('get', '/v1/agents', {
      id: 'listAgents',
      summary: 'All agents in their newest versions, by name',
      query: agentsQuery,
      response: pageOf(agentResource, [exampleAgent], LIMIT),
      handler: async ({ query: { limit, order, page_token: token } }) => {
        const position = positionOf(agentPosition, token, { order });
        return pageOfRows(await catalog.agents.list(order, position?.agent, limit + 1), limit, {
          toItem: async (row) => toResource({ ...row, spec: await catalog.agents.spec(row.spec_hash) }),
          after: ({ name }) => ({ order, agent: name }),
        });
      },
    }),
    route('get', '/v1/agents/:agent_name', {
      id: 'getAgent',
      summary: 'The newest version of an agent',
      response: responseBody,
      errors: ['agent_not_found'],
      handler: async ({ params: { agent_name: name } }) => {
        const agent = await requireAgent(catalog, name);
        return { data: withWarnings(toResource(agent), await agentCheck.warnings(agent.spec)) };
      },
    }),
    route('put', '/v1/agents/:agent_name', {
      id: 'putAgent',
      largeBody: true,
      requires: 'writeAgents',
      summary: 'Register an agent, or a new version of it',
      description:
        'Existing sessions keep the version that they were created with. With `check=true` each of its models gets a ' +
        'question of a few tokens, and each of its MCP servers lists its tools, with the credentials of this server and ' +
        'the sign-ins of the caller; `checks` has the results. Models and servers over HTTP are waited for up to ' +
        '15 seconds, programs that are being installed as long as that may take.',
      query: putQuery,
      body: json(agentSpec, exampleSpec),
      response: responseBody,
      errors: ['invalid_agent', 'feature_not_available'],
      handler: async ({ params: { agent_name: name }, query: { check }, body: spec, caller, response }) => {
        if (!NAME.test(name) || RESERVED.has(name)) {
          throw new ApiError('invalid_agent', `an agent cannot be named ${JSON.stringify(name)}`, {
            param: 'agent_name',
          });
        }
        await checkNewAgent(spec, { owner: null, agentCheck, budget: new SchemaBudget() });
        const agent = await catalog.agents.put(name, spec, new Date().toISOString());
        await agentCheck.logWarnings(agent);
        const { subjectId } = caller.subject;
        const [warnings, checks] = await Promise.all([
          agentCheck.newWarnings(spec),
          check === 'true' ? tryAgent(spec, subjectId, disconnection(response)) : undefined,
        ]);
        return { data: { ...withWarnings(toResource(agent), warnings), ...(checks && { checks }) } };
      },
    }),
    route('delete', '/v1/agents/:agent_name', {
      id: 'deleteAgent',
      requires: 'writeAgents',
      summary: 'Delete an agent',
      description:
        'Its sessions keep their versions, which can still be read; no new sessions can be created. When the name is ' +
        'registered again, the numbers of its versions continue.',
      errors: ['agent_not_found'],
      handler: async ({ params: { agent_name: name } }) => {
        const isDeleted = identifier.safeParse(name).success && (await catalog.agents.delete(name));
        if (!isDeleted) throw agentNotFound(name);
      },
    }),
    route('get', '/v1/agents/:agent_name/versions', {
      id: 'listAgentVersions',
      summary: 'All versions of an agent, newest first',
      description: 'Also for a deleted agent.',
      query: versionsQuery,
      response: pageOf(agentVersionResource, [exampleAgentVersion], LIMIT),
      errors: ['agent_not_found'],
      handler: async ({ params: { agent_name: name }, query: { limit, order, page_token: token } }) => {
        const position = positionOf(versionPosition, token, { order, versions_of: name });
        const isName = identifier.safeParse(name).success;
        const rows = isName ? await catalog.agents.versions(name, order, position?.version, limit + 1) : [];
        if (rows.length === 0 && !position) throw agentNotFound(name);
        const after = ({ version }: { version: number }) => ({ order, versions_of: name, version });
        return pageOfRows(rows, limit, { toItem: toVersion, after });
      },
    }),
    route('get', '/v1/agents/:agent_name/versions/:agent_version', {
      id: 'getAgentVersion',
      summary: 'One version of an agent',
      description:
        'A version never changes, and remains after the agent is deleted, because sessions are pinned to it.',
      response: dataOf(agentVersionResource, exampleAgentVersion),
      errors: ['agent_not_found'],
      handler: async ({ params: { agent_name: name, agent_version: text } }) => {
        const version = /^\d{1,10}$/.test(text) ? Number(text) : 0;
        const isValid = identifier.safeParse(name).success && version > 0 && version <= MAX_VERSION;
        const row = isValid ? await catalog.agents.version(name, version) : undefined;
        if (!row) throw new ApiError('agent_not_found', `agent ${JSON.stringify(name)} has no version ${text}`);
        return { data: await toVersion(row) };
      },
    }),
  ];

  async function toVersion(row: AgentVersionRow): Promise<AgentVersionResource> {
    const { agent_name: name, version, spec_hash: hash, created_at } = row;
    return { name, version, spec: inFormat(await catalog.agents.spec(hash)), created_at };
  }
}

function toResource({ name, version, spec, created_at, updated_at }: AgentWithSpec): AgentResource {
  return { name, version, spec: inFormat(spec), created_at, updated_at };
}

function withWarnings(agent: AgentResource, warnings: string[]): AgentResource {
  return { ...agent, ...(warnings.length > 0 && { warnings }) };
}
