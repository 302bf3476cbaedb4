import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { namingUnknownKeys } from '../lib/unknown-keys.ts';
import { agentSpec } from '../spec/agent-spec.ts';
import { toolArguments } from './agents-v2/mcp/tools.ts';
import { sessionRequest } from './agents-v2/wire/session.ts';
import { documentsOf } from './app.ts';
import type { ApiContext } from './http/context.ts';
import type { Route } from './http/route.ts';
import { inputItems } from './runs/wire/items.ts';
import { resultContent } from './runs/wire/parts.ts';
import { createTurnBody } from './sessions/wire/input.ts';

/** Sufficient to build the routes; none is called. */
const context = { config: { trustedProxies: [] }, keyring: {} } as unknown as ApiContext;
const routes = documentsOf(context).flatMap((described) =>
  described.routes.filter(({ declaration }) => !declaration.isUndocumented),
);

/** Values that llm-sdk may have stored with fields of its own, so that they are ignored. */
const OPEN = new Set<z.core.$ZodType>([inputItems, resultContent]);

/** All objects in a schema, with their places. */
function objectsIn(
  schema: z.core.$ZodType,
  place: string,
  seen = new Set(OPEN),
): { place: string; object: z.ZodObject }[] {
  if (seen.has(schema)) return [];
  seen.add(schema);
  const inside = (inner: z.core.$ZodType, step = '') => objectsIn(inner, `${place}${step}`, seen);
  const { def } = (schema as z.core.$ZodTypes)._zod;
  switch (def.type) {
    case 'object': {
      const fields = Object.entries(def.shape).flatMap(([field, inner]) => inside(inner, `.${field}`));
      return [{ place, object: schema as z.ZodObject }, ...fields];
    }
    case 'array':
      return inside(def.element, '.0');
    case 'record':
      return inside(def.valueType, '.*');
    case 'union':
      return def.options.flatMap((option) => inside(option));
    case 'optional':
    case 'nullable':
    case 'default':
      return inside(def.innerType);
    case 'pipe':
      return [...inside(def.in), ...inside(def.out)];
    case 'lazy':
      return inside(def.getter());
    case 'string':
    case 'number':
    case 'boolean':
    case 'null':
    case 'enum':
    case 'literal':
    case 'unknown':
    case 'transform':
    // A raw body.
    case 'custom':
      return [];
    default:
      throw new Error(`${place}: say which objects are in a schema of the type ${def.type}`);
  }
}

test.each(Object.entries(toolArguments))(
  'the tool %s of /mcp names an unknown argument, and the nearest one',
  (_, schema) => {
    const [known = ''] = Object.keys(schema.shape);
    // The library of MCP parses it without further options.
    const messages = schema.safeParse({ [`${known}z`]: 1 }).error?.issues.map(({ message }) => message);
    expect(messages).toContain(`unknown key "${known}z": do you mean "${known}"?`);
  },
);

test('every request but GET has a schema for its body: what takes none has an empty one', () => {
  const open = routes.filter(({ method, declaration }) => method !== 'get' && !declaration.body);
  expect(open.map(({ path }) => path)).toEqual([]);
});

const bodies = routes.flatMap(({ method, path, declaration: { body } }) =>
  body ? [{ request: `${method.toUpperCase()} ${path}`, schema: body.schema }] : [],
);

test.each(bodies)('$request names an unknown key and the nearest known one, in each of its objects', ({ schema }) => {
  for (const { place, object } of objectsIn(schema, 'body')) {
    const [known] = Object.keys(object.shape);
    const { error } = object.safeParse({ [`${known ?? ''}z`]: 1 }, { error: namingUnknownKeys });
    const messages = error?.issues.flatMap(({ code, message }) => (code === 'unrecognized_keys' ? message : []));
    const hint = known === undefined ? 'no keys are known here' : `do you mean "${known}"?`;
    expect(messages, place).toEqual([`unknown key "${known ?? ''}z": ${hint}`]);
  }
});

test('the objects of agents, of policies and of items of turns are among them', () => {
  const places = bodies.flatMap(({ request, schema }) => objectsIn(schema, request).map(({ place }) => place));
  expect(places).toEqual(
    expect.arrayContaining([
      'PUT /v1/agents/:agent_name.config.decision_policies.0.match',
      'POST /v1/agents/sessions/:session_id/turns.input.0.content.0.file',
      'POST /v1/agents/sessions/:session_id/actions.input.0.approval',
      'POST /v1/runs/:run_id/resume.tool_results.0.error',
      'POST /api/v2/sessions.agent.tools.0',
    ]),
  );
});

test('items of runs and their parts may have fields that are not known', () => {
  const part = { type: 'text', text: 'Hi', x_part: 1 };
  const items = inputItems.parse([{ type: 'message', role: 'user', content: [part], x_item: 1 }]);
  expect(items).toEqual([{ type: 'message', role: 'user', content: [{ type: 'text', text: 'Hi' }] }]);
});

/** The schema that takes the value of a field of a response, where that is a specification or a list of items. */
const TAKEN_BY: Record<string, z.ZodType> = {
  spec: agentSpec,
  agent_spec: agentSpec,
  request: sessionRequest,
  session_request: sessionRequest,
};

/** The specifications and items in an example of a response, with the schemas that they must fit. */
function returnedIn(value: unknown): [value: unknown, schema: z.ZodType][] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([field, inner]: [string, unknown]): [unknown, z.ZodType][] => {
    const schema = Array.isArray(inner) && field === 'input' ? createTurnBody.shape.input : TAKEN_BY[field];
    if (schema) return [[inner, schema]];
    return 'object' in value && value.object === 'run' && field === 'output'
      ? [[inner, inputItems]]
      : returnedIn(inner);
  });
}

const exampleOf = ({ declaration: { response } }: Route): unknown =>
  response && 'example' in response ? response.example : undefined;

test('what examples of responses have as a specification or as items can be sent back', () => {
  const returned = routes.flatMap((route) => returnedIn(exampleOf(route)));
  for (const [value, schema] of returned) expect(schema.safeParse(value).error, JSON.stringify(value)).toBe(undefined);
  const schemas = new Set(returned.map(([, schema]) => schema));
  expect(schemas).toEqual(new Set([...Object.values(TAKEN_BY), createTurnBody.shape.input, inputItems]));
});

test('the result of GET can be put back', () => {
  const replaced = routes.filter(({ method }) => method === 'put');
  const pairs = routes.flatMap((get) => {
    const put = get.method === 'get' ? replaced.find(({ path }) => path === get.path) : undefined;
    return put ? [{ path: get.path, example: exampleOf(get), body: put.declaration.body }] : [];
  });
  for (const { path, example, body } of pairs) {
    const data = z.object({ data: z.looseObject({ spec: z.unknown().optional() }) }).safeParse(example).data?.data;
    const value = data?.spec ?? data ?? example;
    expect(body?.schema.safeParse(value).error, path).toBe(undefined);
  }
  expect(pairs.map(({ path }) => path)).toEqual(
    expect.arrayContaining([
      '/v1/agents/:agent_name',
      '/v1/agents/:agent_name/code-tools/:category/:tool_name',
      '/api/v2/agents/*agent',
      '/api/v2/skills/*skill',
      '/api/v2/environments/*environment',
    ]),
  );
});

test('an answer that a turn returns, with its author, can be sent back', () => {
  const by = { subject_id: 'ann', subject_type: 'user', subject_slug: 'ann' };
  const call = { thread_id: 'main', tool_call_id: 'c1', by };
  const input = [
    { type: 'user.tool_approval', ...call, approval: { status: 'allow', arguments: { n: 1 } } },
    { type: 'user.tool_response', ...call, content: 'done' },
  ];
  expect(createTurnBody.safeParse({ input }).error).toBe(undefined);
});

test('an agent of a list, with its revision, can be put back', () => {
  const body = routes.find(({ method, path }) => method === 'put' && path === '/api/v2/agents/*agent')?.declaration
    .body;
  const agent = { name: 'order-desk', description: 'Answers', environments: [] };
  expect(body?.schema.parse({ ...agent, revision: 3 })).toEqual(agent);
});

test('the agents of the examples are accepted', () => {
  const folder = new URL('../../examples/agents/', import.meta.url);
  for (const file of readdirSync(folder)) {
    const spec: unknown = JSON.parse(readFileSync(new URL(file, folder), 'utf8'));
    expect(agentSpec.parse(spec), file).toEqual(spec);
  }
});
