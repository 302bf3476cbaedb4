import type { ApiContext } from '../http/context.ts';
import { parsePart } from '../http/request.ts';
import { json, type Route } from '../http/route.ts';
import { routesOf } from './route.ts';
import { patched, skillsOf } from './agent-parts.ts';
import { paging, requireSameName, searched, sortQuery } from './catalog-queries.ts';
import { exampleSkill } from './examples.ts';
import { skill, skillPatch } from './wire/agent.ts';
import { numberedPageOf } from './wire/query.ts';

const listQuery = paging.extend({
  name: searched.describe('a part of the name'),
  search: searched.describe('a part of the name or the description'),
  sort: sortQuery({ created_at: 'created_at', name: 'name' }, { by: 'created_at', descending: true }),
});

const route = routesOf('Agent catalog');
const requires = 'writeAgents';
const responseBody = json(skill, exampleSkill);

/** Skills: instructions for particular tasks, which agents name. */
export function skillRoutes({ catalog }: ApiContext): Route[] {
  const skills = skillsOf(catalog);
  return [
    route('post', '/api/v2/skills', {
      id: 'createSkill',
      requires,
      largeBody: true,
      summary: 'Register a skill',
      body: json(skill, exampleSkill),
      status: 201,
      response: responseBody,
      errors: ['already_exists'],
      handler: ({ body }) => skills.create(body),
    }),
    route('get', '/api/v2/skills', {
      id: 'listSkills',
      summary: 'All skills by pages',
      query: listQuery,
      response: json(numberedPageOf(skill), { items: [exampleSkill], total: 1, page: 1 }),
      errors: ['page_too_large'],
      handler: ({ query }) => skills.page(query),
    }),
    route('get', '/api/v2/skills/*skill', {
      id: 'getSkill',
      summary: 'A skill',
      response: responseBody,
      handler: ({ params }) => skills.get(params.skill),
    }),
    route('put', '/api/v2/skills/*skill', {
      id: 'updateSkill',
      requires,
      largeBody: true,
      summary: 'Replace a skill',
      description: 'Sessions that exist keep the skill as it was.',
      body: json(skill, exampleSkill),
      response: responseBody,
      handler: ({ params, body }) => {
        requireSameName('name', { body: body.name, url: params.skill });
        return skills.change(params.skill, () => body);
      },
    }),
    route('patch', '/api/v2/skills/*skill', {
      id: 'patchSkill',
      requires,
      largeBody: true,
      summary: 'Change some fields of a skill',
      body: json(skillPatch, { description: exampleSkill.description }),
      response: responseBody,
      handler: ({ params, body }) =>
        skills.change(params.skill, (current) => parsePart(skill, patched(current, body), 'body')),
    }),
    route('delete', '/api/v2/skills/*skill', {
      id: 'deleteSkill',
      requires,
      summary: 'Delete a skill',
      description: 'Agents that name it start no further sessions.',
      handler: ({ params }) => skills.delete(params.skill),
    }),
  ];
}
