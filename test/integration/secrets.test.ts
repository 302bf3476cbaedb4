import path from 'node:path';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { freePort } from '../../src/lib/processes.ts';
import { newId } from '../../src/engine/new-id.ts';
import { ApiClient } from '../support/api-client.ts';
import { everturn } from '../support/command-line.ts';
import { OidcIssuer } from '../support/oidc-issuer.ts';
import { ServerProcess } from '../support/server-process.ts';

const secrets = {
  key: 'env-key-of-ann-1f7c',
  guess: 'a-guess-at-a-key-93ab',
  model: 'sk-model-provider-key-77',
  redis: 'redis-pass/word-55',
  header: 'mcp-header-token-3310',
  subscription: 'mcp-subscription-key-2203',
  inline: 'inline-url-token-8812',
  inlineUser: 'inline-password-4242',
  fileUser: 'file-password-6161',
  fileSignature: 'file-signature-7272',
  query: 'query-api-key-1919',
};

let dataDir: string;
let server: ServerProcess;
let idp: OidcIssuer;
let closeEcho: () => void;
beforeAll(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), 'everturn-secrets-'));
  idp = await OidcIssuer.start();
  // Every response is an error that quotes the whole request.
  const echo = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (text: string) => (body += text));
    request.on('end', () => {
      if (request.url?.endsWith('/models')) return void response.writeHead(404).end();
      const message = `not you: ${JSON.stringify(request.headers)} ${request.url} ${body.slice(0, 200)}`;
      response.writeHead(401, { 'content-type': 'application/json' }).end(JSON.stringify({ error: { message } }));
    });
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => echo.once('listening', resolve));
  closeEcho = () => void echo.close();
  const url = `http://127.0.0.1:${(echo.address() as AddressInfo).port}`;
  const mcpFile = path.join(dataDir, 'mcp.json');
  const headers = {
    authorization: `Bearer ${secrets.header}`,
    'Apim-Subscription-Key': secrets.subscription,
  };
  await writeFile(mcpFile, JSON.stringify({ servers: { echo: { url: `${url}/mcp`, headers } } }));
  server = await ServerProcess.prepare(dataDir, {
    LOG_LEVEL: 'trace',
    TEMPORAL_ADDRESS: inject('temporalAddress'),
    TEMPORAL_NAMESPACE: inject('temporalNamespace'),
    EVERTURN_TASK_QUEUE: newId('req'),
    EVERTURN_API_KEYS: `ann:admin=${secrets.key}`,
    EVERTURN_MCP_SERVERS: mcpFile,
    EVERTURN_ALLOW_PRIVATE_URLS: 'true',
    EVERTURN_OIDC_ISSUER: idp.url,
    EVERTURN_OIDC_AUDIENCE: 'everturn',
    OPENAI_API_KEY: secrets.model,
    OPENAI_BASE_URL: `${url}/v1`,
    // The server does not exist, which is logged repeatedly.
    REDIS_URL: `redis://user:${encodeURIComponent(secrets.redis)}@127.0.0.1:${await freePort()}/0`,
  });
  await server.start();
});
afterAll(async () => {
  await server.stop();
  await idp.stop();
  closeEcho();
  await rm(dataDir, { recursive: true, force: true });
});

test('no secret is in the most verbose log, or in messages to users', async () => {
  const made = await everturn(['keys', 'create', 'bob'], { EVERTURN_DATA: dataDir });
  const key = made.stdout.trim();
  const token = await idp.token();
  const { url } = server.api;
  const ann = new ApiClient(url, secrets.key);
  const told: string[] = [];
  for (const credential of [
    secrets.guess,
    key,
    token,
    await idp.token({ exp: 1 }),
    await idp.token({ iss: 'other' }),
  ]) {
    const answer = await new ApiClient(url, credential).send('GET', `/v1/agents?api_key=${secrets.query}`);
    told.push(JSON.stringify(answer.body));
  }
  const agents = {
    registered: { type: 'truefoundry-mcp-registry', name: 'echo' },
    inline: { type: 'inline', name: 'away', url: `http://127.0.0.1:9/mcp?token=${secrets.inline}` },
    user: { type: 'inline', name: 'user', url: `http://me:${secrets.inlineUser}@127.0.0.1:9/mcp` },
    none: undefined,
  };
  for (const [name, mcpServer] of Object.entries(agents)) {
    const spec = { model: { name: 'm' }, ...(mcpServer && { mcp_servers: [mcpServer] }) };
    const put = await ann.send<{ data: { checks: object[] } }>('PUT', `/v1/agents/${name}?check=true`, spec);
    expect(put.body.data.checks).toContainEqual(expect.objectContaining({ type: 'model', status: 'failed' }));
    told.push(JSON.stringify(put.body.data.checks));
    const id = await ann.createSession(name);
    const state = await ann.turn(id, 'hi').end();
    expect(state.status).toBe('error');
    told.push(JSON.stringify(state));
    for (const data of [
      `http://me:${secrets.fileUser}@127.0.0.1:9/`,
      `http://127.0.0.1:9/a?X-Signature=${secrets.fileSignature}`,
    ]) {
      const input = [{ type: 'user.message', content: [{ type: 'file', name: 'a', data }] }];
      const { status, body } = await ann.send('POST', `/v1/agents/sessions/${id}/turns`, { input });
      expect(status).toBe(422);
      told.push(JSON.stringify(body));
    }
  }
  // The provider's messages were passed on, without the secrets that they quoted.
  expect(told.join('\n')).toMatch(/not you: .*\[hidden\]/);
  await server.stop();
  const { output } = server;
  expect(output).toMatch(/Redis is unavailable/);
  expect(output).toMatch(/"msg":"request completed"/);
  expect(output).toContain('api_key=[hidden]');
  const all = { ...secrets, key: secrets.key, created: key, token, redisEncoded: encodeURIComponent(secrets.redis) };
  for (const [name, secret] of Object.entries(all)) {
    expect(output.includes(secret), `${name} in the log`).toBe(false);
    expect(told.join('\n').includes(secret), `${name} in an answer`).toBe(false);
  }
});
