import type { Response } from 'express';
import { z } from 'zod';
import { identifier, line } from '../../spec/bounds.ts';
import type { ApiContext } from '../http/context.ts';
import { agentNotFound } from '../http/errors.ts';
import { json, type Route } from '../http/route.ts';
import { routesOf } from './route.ts';
import { MAX_PAGE_LENGTH, pageTooLarge, paging, rangeOf, RESERVED, searched, sortQuery } from './catalog-queries.ts';
import { exampleAgent, exampleRevision } from './examples.ts';
import { AgentExpansion } from './expand-agent.ts';
import { readAgent, toRegistered } from './registered-agents.ts';
import { agent, agentPatch, agentResource, agentRevision, type AgentResource } from './wire/agent.ts';
import { booleanQuery, integerQuery, numberedPageOf } from './wire/query.ts';
import { AgentWriter, type StoredAgent } from './write-agents.ts';

const listQuery = paging.extend({
  agent_name: searched.describe('a part of the name'),
  search: searched.describe('a part of the name or the description'),
  reserved: booleanQuery.optional().describe(`true: only names that begin with ${RESERVED}; false: only the others`),
  include: z.enum(['revision']).optional().describe('revision: with the number of the newest revision'),
  sort: sortQuery({ created_at: 'created_at', agent_name: 'name' }, { by: 'created_at', descending: true }),
});

const revisionsQuery = paging.extend({
  sort: sortQuery({ number: 'number' }, { by: 'number', descending: true }),
});

const readQuery = z.object({
  revision: integerQuery({ min: 1, max: 2 ** 31 - 1 })
    .optional()
    .describe('default: the newest'),
  resolve: booleanQuery.default(false).describe('true: with the definitions of what it names'),
});

const messageQuery = z.object({
  message: line({ min: 1, max: 1_000 }).optional().describe('why; kept with the revision'),
});

const ifMatch = z.object({
  'If-Match': z
    .string()
    .regex(/^(\*|(W\/)?"?\d{1,9}"?)$/, 'must be the ETag of a revision, such as "3", or *')
    .transform((text) => (text === '*' ? undefined : Number(text.replaceAll(/\D/g, ''))))
    .optional()
    .describe('the ETag of the revision on which the change is based'),
});

/** An agent in a request, which may also have the fields of an agent in a list. */
const sentAgent = agent
  .extend({
    revision: z
      .int()
      .optional()
      .describe('not read: the header If-Match names the revision on which a change is based'),
  })
  .transform((sent) => {
    const { revision: _, ...definition } = sent;
    return definition;
  });

const route = routesOf('Agent catalog');
const requires = 'writeAgents';
const responseBody = json(agentResource, exampleAgent);
const notRunnable = ['invalid_agent', 'feature_not_available', 'content_too_large'] as const;

/** The common declarations of the routes that change an agent by a new revision. */
const revises = {
  requires,
  headers: ifMatch,
  response: responseBody,
  errors: [...notRunnable, 'precondition_failed'],
} as const;

/** Registered agents, which sessions name. */
export function agentRoutes(context: ApiContext): Route[] {
  const { catalog } = context;
  const writer = new AgentWriter(context);
  return [
    route('post', '/api/v2/agents', {
      id: 'createAgent',
      requires,
      largeBody: true,
      summary: 'Register an agent',
      query: messageQuery,
      body: json(sentAgent, exampleAgent),
      status: 201,
      response: responseBody,
      errors: [...notRunnable, 'already_exists'],
      handler: async ({ query: { message }, body, caller, response }) =>
        withTag(response, await writer.create(body, { caller, message })),
    }),
    route('get', '/api/v2/agents', {
      id: 'listAgents',
      summary: 'All registered agents by pages',
      query: listQuery,
      response: json(numberedPageOf(agentResource), { items: [exampleAgent], total: 1, page: 1 }),
      errors: ['page_too_large'],
      handler: async ({ query: { agent_name: name, search, reserved, include, sort, ...range } }) => {
        const prefix = reserved === undefined ? undefined : reserved ? { is: RESERVED } : { not: RESERVED };
        const query = { name, search, prefix, sort, ...rangeOf(range) };
        const page = await catalog.agentDefinitions.page(query, MAX_PAGE_LENGTH);
        if (!page) throw pageTooLarge();
        const agents = await Promise.all(page.rows.map((row) => toRegistered(catalog, row)));
        const items = agents.map(({ definition, revision }): AgentResource => ({
          ...definition,
          ...(include && { revision }),
        }));
        return { items, total: page.total, page: range.page };
      },
    }),
    route('get', '/api/v2/agents/*agent/revisions', {
      id: 'listAgentRevisions',
      summary: 'The revisions of an agent by pages, newest first',
      query: revisionsQuery,
      response: json(numberedPageOf(agentRevision), { items: [exampleRevision], total: 3, page: 1 }),
      handler: async ({ params, query }) => {
        const descending = query.sort.at(0)?.descending ?? true;
        const isName = identifier.safeParse(params.agent).success;
        const range = { ...rangeOf(query), descending };
        const page = isName ? await catalog.agentDefinitions.revisions(params.agent, range) : undefined;
        if (!page) throw agentNotFound(params.agent);
        return { items: page.rows, total: page.total, page: query.page };
      },
    }),
    route('post', '/api/v2/agents/*agent/revisions/:revision/restore', {
      id: 'restoreAgentRevision',
      ...revises,
      summary: 'Make an earlier revision the current one again, as a new revision',
      handler: async ({ params, headers, caller, response }) => {
        const revision = /^[1-9]\d{0,8}$/.test(params.revision) ? Number(params.revision) : 0;
        const stored = await writer.restore(params.agent, revision, { caller, ifMatch: headers['If-Match'] });
        return withTag(response, stored);
      },
    }),
    route('get', '/api/v2/agents/*agent', {
      id: 'getAgent',
      summary: 'A registered agent',
      description: 'Agents of the Sessions API are here, too: with what this API has words for.',
      query: readQuery,
      response: responseBody,
      errors: ['content_too_large'],
      handler: async ({ params, query: { revision, resolve }, response }) => {
        const found = await readAgent(catalog, params.agent, revision);
        if (!found) throw agentNotFound(params.agent);
        const { name, definition } = found;
        if (resolve) return new AgentExpansion(catalog).expand(definition, (inner) => inner, name);
        return withTag(response, { agent: definition, revision: found.revision });
      },
    }),
    route('put', '/api/v2/agents/*agent', {
      id: 'updateAgent',
      ...revises,
      largeBody: true,
      summary: 'Replace an agent by a new revision',
      description: 'Sessions that exist keep the revision that they have. An equal definition makes no new revision.',
      query: messageQuery,
      body: json(sentAgent, exampleAgent),
      handler: async ({ params, query: { message }, headers, body, caller, response }) => {
        const change = { caller, message, ifMatch: headers['If-Match'] };
        return withTag(response, await writer.replace(params.agent, body, change));
      },
    }),
    route('patch', '/api/v2/agents/*agent', {
      id: 'patchAgent',
      ...revises,
      largeBody: true,
      summary: 'Change some fields of an agent, as a new revision',
      query: messageQuery,
      body: json(agentPatch, { description: exampleAgent.description }),
      handler: async ({ params, query: { message }, headers, body, caller, response }) => {
        const change = { caller, message, ifMatch: headers['If-Match'] };
        return withTag(response, await writer.patch(params.agent, body, change));
      },
    }),
    route('delete', '/api/v2/agents/*agent', {
      id: 'deleteAgent',
      requires,
      summary: 'Delete an agent',
      description: 'Its sessions keep their revisions. If the name is registered again, the numbers continue.',
      headers: ifMatch,
      errors: ['precondition_failed'],
      handler: ({ params, headers }) => writer.delete(params.agent, headers['If-Match']),
    }),
  ];
}

function withTag(response: Response, { agent, revision }: StoredAgent): AgentResource {
  response.set('etag', `"${revision}"`);
  return agent;
}
