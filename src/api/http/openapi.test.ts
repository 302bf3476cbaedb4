import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import express, { type IRouter } from 'express';
import { pino } from 'pino';
import { expect, onTestFinished, test, vi } from 'vitest';
import { z } from 'zod';
import { createApp, documentsOf, FACES } from '../app.ts';
import type { ApiContext } from './context.ts';
import { ERRORS } from './errors.ts';
import type { Face } from './face.ts';
import { lastEventId } from './headers.ts';
import { openApiDocument, refusals, withDocument } from './openapi.ts';
import { pageQuery } from './pagination.ts';
import { json, METHODS, mount, routesOfFace, type FaceFacts, type Route } from './route.ts';

/** Sufficient to build the routes; none is called. */
const context = { config: { trustedProxies: [] }, log: pino({ level: 'silent' }) } as unknown as ApiContext;
const described = documentsOf(context);
const documents = described.map(({ options, routes }) => openApiDocument(routes, options, { hasKeys: true }));
const everyRoute = described.flatMap(({ routes }) => routes);

test('the documents have exactly the methods and paths that are served', () => {
  const served = servedBy(createApp(context).router).flatMap(({ path, methods }) =>
    methods.map((method) => `${method} ${path.replaceAll(/[:*](\w+)/g, '{$1}')}`),
  );
  const operations = documents.flatMap(({ paths = {} }) =>
    Object.entries(paths).flatMap(([path, operations]) => Object.keys(operations).map((method) => `${method} ${path}`)),
  );
  // MCP describes itself.
  expect([...operations, 'post /mcp'].toSorted()).toEqual(served.toSorted());
  expect(served).toContain('post /v1/agents/sessions/{session_id}/turns');
});

/** The routes registered in Express, without the catch-all for other methods. */
function servedBy(router: IRouter): { path: string; methods: string[] }[] {
  return router.stack.flatMap(({ route }) =>
    route
      ? [
          {
            path: route.path,
            methods: [...new Set(route.stack.map(({ method }) => method))].filter((m) => m !== undefined),
          },
        ]
      : [],
  );
}

test('no two faces have the same name, tag, prefix or error', () => {
  const faces: readonly Face[] = FACES;
  const names = faces.flatMap(({ name, tags, prefixes, errorKinds = {} }) => [
    name,
    ...[tags, prefixes, errorKinds].flatMap((table) => Object.keys(table)),
  ]);
  expect([...names, ...Object.keys(ERRORS)].toSorted()).toEqual(
    [...new Set([...names, ...Object.keys(ERRORS)])].toSorted(),
  );
});

test('examples match their schemas', () => {
  for (const { declaration } of everyRoute) {
    const { id, body, response } = declaration;
    const contents = [body, ...(response && 'written' in response ? Object.values(response.written) : [response])];
    for (const content of contents) {
      if (content) expect(content.schema.parse(content.example), id).toEqual(content.example);
    }
  }
});

test.each(documents)(
  'every operation of $info.title has a unique id, a success response and the common errors',
  ({ paths = {} }) => {
    const operations = Object.values(paths).flatMap((path) => METHODS.flatMap((method) => path[method] ?? []));
    const names = operations.map(({ operationId }) => operationId);
    expect(names).toEqual([...new Set(names)]);
    for (const { operationId, responses = {}, security } of operations) {
      const statuses = Object.keys(responses);
      expect(
        statuses.some((status) => /^[23]/.test(status)),
        operationId,
      ).toBe(true);
      expect(statuses, operationId).toEqual(expect.arrayContaining(['400', '500']));
      // Some routes take a key, and need none.
      expect(statuses.includes('401'), operationId).toBe(security?.some((one) => 'key' in one) === true);
    }
  },
);

test('the documents say that what clients send has no other keys, and leave open what only the server sends', () => {
  const [sessions] = documents;
  const isClosed = (name: string): boolean => {
    const schema = sessions?.components?.schemas?.[name];
    return typeof schema === 'object' && 'additionalProperties' in schema && schema.additionalProperties === false;
  };
  const cancel = sessions?.paths?.['/v1/runs/{run_id}/cancel']?.post?.requestBody;
  expect(JSON.stringify(cancel)).toContain('"additionalProperties":false');
  const deleted = sessions?.paths?.['/v1/runs/{run_id}']?.delete?.requestBody;
  expect(deleted).toMatchObject({
    required: false,
    content: { 'application/json': { schema: { additionalProperties: false } } },
  });
  expect(['AgentSpec', 'DecisionPolicy', 'ResumeRequest', 'RunInputItem', 'Turn', 'Agent'].map(isClosed)).toEqual([
    true,
    true,
    true,
    false,
    false,
    false,
  ]);
});

test('what may be missing, and what streams and pages reject, follows from the declaration of a route', () => {
  const FACTS = {
    prefixes: { '/x': 'key', '/open': 'all' },
    tags: { Things: 'what there is' },
    parameters: { thing_id: z.string() },
    notFound: { thing_id: ERRORS.file_not_found },
  } as const satisfies FaceFacts;
  const route = routesOfFace(FACTS)('Things');
  const declared = { id: 'x', summary: '', handler: () => undefined };
  const codesOf = (one: Route) => {
    const plain = refusals(route('get', '/x', declared), { hasKeys: true });
    const codes = new Set(refusals(one, { hasKeys: true }).map(({ code }) => code));
    return [...codes.difference(new Set(['invalid_request', ...plain.map(({ code }) => code)]))];
  };
  const stream = { written: { 'text/event-stream': json(z.object({}), {}) } };
  expect(codesOf(route('get', '/x/:thing_id', declared))).toEqual(['file_not_found']);
  expect(codesOf(route('get', '/open/:thing_id', declared))).toEqual([]);
  const query = pageQuery({ defaultLimit: 1, maxLimit: 1 });
  expect(codesOf(route('get', '/x', { ...declared, query }))).toEqual(['invalid_page_token']);
  const headers = z.object(lastEventId);
  expect(codesOf(route('get', '/x', { ...declared, headers, response: stream }))).toEqual([
    'invalid_cursor',
    'too_many_streams',
  ]);
});

test.each(described.map(({ options }) => options))(
  '$about.path is serialized once, for servers with keys and without',
  async (options) => {
    let hasKeys = true;
    const app = express();
    mount(app, withDocument([], { prefixes: {} }, options, { hasKeys: () => hasKeys }));
    const server = app.listen(0, '127.0.0.1');
    onTestFinished(() => void server.close());
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const get = async () => {
      const response = await fetch(`http://127.0.0.1:${port}${options.about.path}`);
      expect(response.headers.get('content-type')).toBe('application/json; charset=utf-8');
      return response.text();
    };
    const stringify = vi.spyOn(JSON, 'stringify');
    onTestFinished(() => stringify.mockRestore());
    const withKeys = await get();
    hasKeys = false;
    const keyless = await get();
    stringify.mockClear();
    expect(await get()).toBe(keyless);
    hasKeys = true;
    expect(await get()).toBe(withKeys);
    expect(stringify).not.toHaveBeenCalled();
    expect([withKeys, keyless].map((text) => 'securitySchemes' in JSON.parse(text).components)).toEqual([true, false]);
  },
);
