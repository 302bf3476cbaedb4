import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { listen, type LocalServer } from '../../src/demo/local-server.ts';
import { freePort } from '../../src/lib/processes.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

let folder: string;
let closedPort: number;
let lister: LocalServer;
let server: TestServer;
const logged: string[] = [];
beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-model-servers-'));
  // As llama.cpp: it has a list, and no route for one model.
  lister = await listen(({ url }, response) => {
    const isList = url === '/v1/models';
    response.writeHead(isList ? 200 : 404, { 'content-type': 'application/json' });
    response.end(JSON.stringify(isList ? { data: [{ id: 'qwen3' }] } : { error: { message: 'File Not Found' } }));
  }, '/v1');
  closedPort = await freePort();
  const file = path.join(folder, 'providers.json');
  const providers = {
    lister: { kind: 'openai-compatible', base_url: lister.url },
    down: { kind: 'openai-compatible', base_url: `http://127.0.0.1:${closedPort}/v1` },
  };
  await writeFile(file, JSON.stringify({ providers }));
  server = await startTestServer({
    env: { EVERTURN_MODEL_PROVIDERS: file, EVERTURN_DEMO_MODEL: 'lister/qwen2' },
    log: pino({ level: 'warn' }, { write: (line) => void logged.push(line) }),
  });
});
afterAll(async () => {
  await server.stop();
  await lister.stop();
  await rm(folder, { recursive: true });
});

test('the start warns of a demo model that its provider does not list', async () => {
  const warnings = () => logged.filter((line) => line.includes('EVERTURN_DEMO_MODEL'));
  await expect.poll(warnings).toEqual([expect.stringContaining('"model":"lister/qwen2"')]);
  expect(warnings()[0]).toContain('did you mean lister/qwen3?');
});

test('an agent with a model that its provider does not list gets a warning with the nearest name', async () => {
  const write = async (model: string) => {
    const { status, body } = await server.api.send('PUT', '/v1/agents/typo', { model: { name: model } });
    return [status, body.data.warnings];
  };
  const warning = expect.stringMatching(/^model\.name: .* does not list .*: did you mean lister\/qwen3\?$/);
  expect(await write('lister/qwen2')).toEqual([200, [warning]]);
  expect(await write('lister/qwen3')).toEqual([200, undefined]);
});

test('a model server that is not running ends the first turn within seconds, and the error says what to check', async () => {
  await server.api.putAgent('down', { model: { name: 'down/m' } });
  const turn = server.api.turn(await server.api.createSession('down'), 'hello');
  expect(await turn.end()).toMatchObject({
    status: 'error',
    message: expect.stringContaining(
      `The provider down has never answered at 127.0.0.1:${closedPort}: check that the server is running, and the address`,
    ),
  });
});

test('a server that has answered is in the catalog', async () => {
  const known = async () =>
    (await server.database.rows.selectFrom('model_servers').select('provider').execute()).map((row) => row.provider);
  await expect.poll(known).toContain('lister');
  expect(await known()).not.toContain('down');
});
