import { z } from 'zod';
import type { Caller } from '../../core/subject.ts';
import { byKey } from '../../engine/request-claims.ts';
import {
  MAX_SAVED_TOOLS,
  moduleOf,
  placeFor,
  savedToolName,
  savedToolProblem,
  type SavedToolName,
  type SavedToolOwner,
} from '../../features/code/saved-tools/saved-tool.ts';
import { codeActionsOf } from '../../spec/code-actions.ts';
import type { ApiContext } from '../http/context.ts';
import { ApiError } from '../http/errors.ts';
import { idempotencyKey } from '../http/headers.ts';
import { authorize, dataOf, json, type Route } from '../http/route.ts';
import { SESSION_ERRORS } from './errors.ts';
import { exampleSavedTool } from './examples.ts';
import { requireAgent } from './require-agent.ts';
import { routesOf } from './route.ts';
import {
  savedTool,
  savedToolAbout,
  savedToolAboutToResource,
  savedToolToResource,
  savedToolBody,
} from './wire/saved-tools.ts';

const route = routesOf('Saved tools');

const headers = z.object(idempotencyKey);
const { api, impl, ...exampleAbout } = exampleSavedTool;
const exampleBody = { kind: exampleAbout.kind, description: exampleAbout.description, api, impl };
const responseBody = dataOf(savedTool, exampleSavedTool);

/** The tools that the code of an agent's sessions has saved, or that a client saves for it. */
export function savedToolRoutes({ catalog }: ApiContext): Route[] {
  return [
    route('get', '/v1/agents/:agent_name/code-tools', {
      id: 'listSavedTools',
      summary: 'The saved tools of an agent, by category and name, without their code',
      description: 'Your own, or, if the agent has `saved_tools: "agent"`, those that all of its sessions share.',
      response: dataOf(z.array(savedToolAbout), [exampleAbout]),
      errors: ['agent_not_found'],
      handler: async ({ params, caller }) => {
        const owner = await findOwner(params.agent_name, caller);
        return { data: owner ? (await catalog.savedTools.list(owner)).map(savedToolAboutToResource) : [] };
      },
    }),
    route('get', '/v1/agents/:agent_name/code-tools/:category/:tool_name', {
      id: 'getSavedTool',
      summary: 'A saved tool with its code',
      response: responseBody,
      errors: ['agent_not_found', 'code_tool_not_found'],
      handler: async ({ params, caller }) => ({
        data: await get(await findOwner(params.agent_name, caller), nameIn(params)),
      }),
    }),
    route('put', '/v1/agents/:agent_name/code-tools/:category/:tool_name', {
      id: 'putSavedTool',
      largeBody: true,
      summary: 'Save a tool, or its next version',
      description:
        'Code imports it from its next run on. It is not compiled now, since this server runs no code outside of sandboxes: ' +
        'what is wrong with it is an exception where it is imported. The tools of an agent with `saved_tools: "agent"` are ' +
        'saved by those who may write agents.',
      headers,
      body: json(savedToolBody, exampleBody),
      status: 201,
      response: responseBody,
      existing: 'it is a new version of a tool that there was',
      errors: ['forbidden', 'agent_not_found', 'invalid_code_tool', 'idempotency_key_reused'],
      handler: async ({ params, headers: { 'Idempotency-Key': key }, body, caller, response }) => {
        const name = { category: params.category, name: params.tool_name };
        const owner = await ownerToChange(params.agent_name, caller);
        const { description, api, impl, kind } = body;
        const tool = { ...name, description, api, impl, kind };
        const { category = name.category, name: own = name.name } = body;
        const isOther = category !== name.category || own !== name.name;
        const problem = isOther ? 'the body names another tool than the path' : savedToolProblem(tool);
        if (problem !== undefined) throw new ApiError(SESSION_ERRORS.invalid_code_tool, problem);
        const request = { catalog, caller, resource: resourceOf(owner, name), key, body, sessionId: '' };
        const { isNew } = await byKey(request, async ({ resourceId, release }) => {
          const by = { by: caller.subject, request: resourceId };
          const saved = await catalog.savedTools.save(owner, tool, by, Date.now());
          if (saved) return saved;
          await release();
          const full = `there are ${MAX_SAVED_TOOLS} saved tools: delete some`;
          throw new ApiError(SESSION_ERRORS.invalid_code_tool, full);
        });
        const data = { data: await get(owner, name) };
        if (!isNew) response.json(data);
        return data;
      },
    }),
    route('delete', '/v1/agents/:agent_name/code-tools/:category/:tool_name', {
      id: 'deleteSavedTool',
      summary: 'Delete a saved tool',
      headers,
      errors: ['forbidden', 'agent_not_found', 'code_tool_not_found', 'invalid_code_tool', 'idempotency_key_reused'],
      handler: async ({ params, headers: { 'Idempotency-Key': key }, caller }) => {
        const name = nameIn(params);
        const owner = await ownerToChange(params.agent_name, caller);
        const request = { catalog, caller, resource: resourceOf(owner, name), key, body: {}, sessionId: '' };
        await byKey(request, async ({ isNew }) => {
          if (isNew && !(await catalog.savedTools.delete(owner, name))) throw notFound(name);
        });
      },
    }),
  ];

  /** The owner of the saved tools that a caller gets; undefined if the agent has none. */
  async function findOwner(agentName: string, caller: Caller): Promise<SavedToolOwner | undefined> {
    const { spec } = await requireAgent(catalog, agentName);
    return placeFor(codeActionsOf(spec), { agentName, subjectId: caller.subject.subjectId });
  }

  async function ownerToChange(agentName: string, caller: Caller): Promise<SavedToolOwner> {
    const owner = await findOwner(agentName, caller);
    if (!owner) {
      const message = 'the agent does not act in code, or has `saved_tools: "none"`';
      throw new ApiError(SESSION_ERRORS.invalid_code_tool, message);
    }
    if (owner.subjectId === undefined) authorize(caller, 'writeAgents');
    return owner;
  }

  async function get(owner: SavedToolOwner | undefined, name: SavedToolName) {
    const tool = owner && (await catalog.savedTools.get(owner, name));
    if (!tool) throw notFound(name);
    return savedToolToResource(tool);
  }
}

/** @throws ApiError `code_tool_not_found` for a name that no tool can have */
function nameIn({ category, tool_name: name }: { category: string; tool_name: string }): SavedToolName {
  if (![category, name].every((one) => savedToolName.safeParse(one).success)) throw notFound({ category, name });
  return { category, name };
}

function notFound(name: SavedToolName): ApiError {
  return new ApiError(
    SESSION_ERRORS.code_tool_not_found,
    `there is no saved tool ${JSON.stringify(moduleOf(name))} here`,
  );
}

function resourceOf({ agentName }: SavedToolOwner, { category, name }: SavedToolName): string {
  return `code-tools/agents/${agentName}/${category}/${name}`;
}
