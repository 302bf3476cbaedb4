import { z } from 'zod';
import type { ApiContext } from '../http/context.ts';
import { parsePart } from '../http/request.ts';
import { json, type Route } from '../http/route.ts';
import { routesOf } from './route.ts';
import { environmentsOf, patched } from './agent-parts.ts';
import { paging, requireSameName, searched, sortQuery } from './catalog-queries.ts';
import { exampleEnvironment } from './examples.ts';
import { numberedPageOf } from './wire/query.ts';
import { ENVIRONMENT_KINDS } from '../../mcp/registry-file.ts';
import { environment, environmentPatch, registeredEnvironment } from './wire/environment.ts';

const listQuery = paging.extend({
  id: searched.describe('a part of the id'),
  kind: z.enum(ENVIRONMENT_KINDS).optional(),
  search: searched.describe('a part of the id'),
  sort: sortQuery({ created_at: 'created_at', id: 'name' }, { by: 'created_at', descending: true }),
});

const route = routesOf('Agent catalog');
const requires = 'writeAgents';
const responseBody = json(environment, exampleEnvironment);

/** Environments: what agents act in, by their ids. */
export function environmentRoutes({ catalog }: ApiContext): Route[] {
  const environments = environmentsOf(catalog);
  return [
    route('post', '/api/v2/environments', {
      id: 'createEnvironment',
      requires,
      summary: 'Register an environment',
      description: 'It is provided by an MCP server that the operator has registered for its kind.',
      body: json(registeredEnvironment, exampleEnvironment),
      status: 201,
      response: responseBody,
      errors: ['already_exists'],
      handler: ({ body }) => environments.create(body),
    }),
    route('get', '/api/v2/environments', {
      id: 'listEnvironments',
      summary: 'All environments by pages',
      query: listQuery,
      response: json(numberedPageOf(environment), { items: [exampleEnvironment], total: 1, page: 1 }),
      errors: ['page_too_large'],
      handler: ({ query: { id, ...query } }) => environments.page({ ...query, name: id }),
    }),
    route('get', '/api/v2/environments/*environment', {
      id: 'getEnvironment',
      summary: 'An environment',
      response: responseBody,
      handler: ({ params }) => environments.get(params.environment),
    }),
    route('put', '/api/v2/environments/*environment', {
      id: 'updateEnvironment',
      requires,
      summary: 'Replace an environment',
      description: 'Sessions that exist keep the environment as it was.',
      body: json(registeredEnvironment, exampleEnvironment),
      response: responseBody,
      handler: ({ params, body }) => {
        requireSameName('id', { body: body.id, url: params.environment });
        return environments.change(params.environment, () => body);
      },
    }),
    route('patch', '/api/v2/environments/*environment', {
      id: 'patchEnvironment',
      requires,
      summary: 'Change some fields of an environment',
      body: json(environmentPatch, { start_url: 'https://shop.example.com' }),
      response: responseBody,
      handler: ({ params, body }) =>
        environments.change(params.environment, (current) => {
          const changed = parsePart(registeredEnvironment, patched(current, body), 'body');
          requireSameName('id', { body: changed.id, url: params.environment });
          return changed;
        }),
    }),
    route('delete', '/api/v2/environments/*environment', {
      id: 'deleteEnvironment',
      requires,
      summary: 'Delete an environment',
      description: 'Agents that name it start no further sessions.',
      handler: ({ params }) => environments.delete(params.environment),
    }),
  ];
}
