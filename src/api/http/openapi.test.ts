import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import express, { type IRouter } from 'express';
import { pino } from 'pino';
import { expect, onTestFinished, test, vi } from 'vitest';
import { AGENTS_V2 } from '../agents-v2/face.ts';
import { agentsV2Routes } from '../agents-v2/routes.ts';
import { apiRoutes, createApp, SESSIONS_API } from '../app.ts';
import type { ApiContext } from './context.ts';
import { openApiDocument, withDocument } from './openapi.ts';
import { METHODS, mount } from './route.ts';

/** Sufficient to build the routes; none is called. */
const context = { config: { trustedProxies: [] }, log: pino({ level: 'silent' }) } as unknown as ApiContext;
const faces = [
  { face: SESSIONS_API, routes: apiRoutes(context) },
  { face: AGENTS_V2, routes: agentsV2Routes(context) },
];
const documents = faces.map(({ face, routes }) => openApiDocument(routes, face, { hasKeys: true }));
const everyRoute = faces.flatMap(({ routes }) => routes);

test('the documents have exactly the methods and paths that are served', () => {
  const served = routesOf(createApp(context).router).flatMap(({ path, methods }) =>
    methods.map((method) => `${method} ${path.replaceAll(/[:*](\w+)/g, '{$1}')}`),
  );
  const described = documents.flatMap(({ paths = {} }) =>
    Object.entries(paths).flatMap(([path, operations]) => Object.keys(operations).map((method) => `${method} ${path}`)),
  );
  // MCP describes itself.
  expect([...described, 'post /mcp'].toSorted()).toEqual(served.toSorted());
  expect(served).toContain('post /v1/agents/sessions/{session_id}/turns');
});

/** The routes registered in Express, without the catch-all for other methods. */
function routesOf(router: IRouter): { path: string; methods: string[] }[] {
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

test('examples match their schemas', () => {
  for (const { declaration } of everyRoute) {
    const { id, body, answer } = declaration;
    const contents = [body, ...(answer && 'written' in answer ? Object.values(answer.written) : [answer])];
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

test.each(faces.map(({ face }) => face))(
  '$path is serialized once, for servers with keys and without',
  async (face) => {
    let hasKeys = true;
    const app = express();
    mount(app, withDocument([], face, { hasKeys: () => hasKeys }));
    const server = app.listen(0, '127.0.0.1');
    onTestFinished(() => void server.close());
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const get = async () => {
      const response = await fetch(`http://127.0.0.1:${port}${face.path}`);
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
