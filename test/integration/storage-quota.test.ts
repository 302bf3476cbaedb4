import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ApiClient } from '../support/api-client.ts';
import { agentNamed } from '../support/agents-v2.ts';
import { eventually } from '../support/eventually.ts';
import { say } from '../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

/** A server on which one subject may store 1 MB. */

const KB = 1024;

let server: TestServer;
let ann: ApiClient;
let root: ApiClient;
beforeAll(async () => {
  const keys = 'root:admin=key-of-root,ann=key-of-ann';
  server = await startTestServer({ env: { EVERTURN_API_KEYS: keys, EVERTURN_STORED_MEGABYTES_PER_SUBJECT: '1' } });
  ann = new ApiClient(server.server.url, 'key-of-ann');
  root = new ApiClient(server.server.url, 'key-of-root');
  await root.putAgent('helper', { model: { name: 'helper' } });
  server.model.otherwise = say('done');
});
afterAll(() => server.stop());

const text = (kilobytes: number) => 'x'.repeat(kilobytes * KB);
const input = (kilobytes: number) => [{ type: 'user.message', content: text(kilobytes) }];

const TABLES = ['sessions', 'turns', 'archive', 'idempotency', 'stored_blobs', 'session_requests'] as const;
const count = (table: (typeof TABLES)[number]) =>
  server.database.rows
    .selectFrom(table)
    .select((eb) => eb.fn.countAll().as('rows'))
    .executeTakeFirstOrThrow();
const rows = () => Promise.all(TABLES.map(count));

test('a subject above its quota stores no more by any request, repeats what it has stored, and deletes', async () => {
  const id = await ann.createSession('helper');
  const path = `/v1/agents/sessions/${id}/turns`;
  const once = { 'idempotency-key': 'once' };
  const first = await ann.send('POST', path, { input: input(700), stream: false }, once);
  expect(first.status).toBe(200);
  const done = async () =>
    expect(await server.database.rows.selectFrom('turns').select('archived').execute()).toEqual([{ archived: 1 }]);
  await eventually(done);
  // The gauge has no value while the catalog does not answer in time.
  await eventually(async () => {
    expect((await scrape()).text).toMatch(/^everturn_stored_bytes\{of="largest_subject"\} 7\d{5}$/m);
  });

  const before = await rows();
  const draft = { agent_spec: { model: { name: 'm' }, instructions: text(500) } };
  const agent = { model: { name: 'm' } };
  for (const [where, body] of [
    [path, { input: input(500) }],
    ['/v1/agents/draft-sessions', draft],
    ['/v1/runs', { agent, input: [{ type: 'message', role: 'user', content: text(500) }] }],
  ] as const) {
    const { status, body: answer } = await ann.send('POST', where, body);
    expect([where, status, answer.error]).toMatchObject([where, 413, { code: 'storage_full', message: REFUSAL }]);
  }
  const session = { agent: agentNamed('helper'), messages: text(500) };
  const { status, body } = await ann.send('POST', '/api/v2/sessions', session);
  expect([status, body]).toMatchObject([413, { message: REFUSAL, detail: [{ type: 'storage_full' }] }]);
  expect(await runByMcp(text(500))).toMatch(/^storage_full: your sessions store/);
  expect(await rows()).toEqual(before);

  const again = await ann.send('POST', path, { input: input(700), stream: false }, once);
  expect([again.status, again.body.data.id]).toEqual([200, first.body.data.id]);
  // Of another subject, and without content, requests are not refused.
  expect(await root.createSession('helper')).toBeDefined();
  expect((await ann.send('DELETE', `/v1/agents/sessions/${id}`)).status).toBe(204);
  expect((await ann.send('POST', '/v1/agents/draft-sessions', draft)).status).toBe(200);
});

const REFUSAL = expect.stringMatching(
  /^your sessions store 7\d{5} bytes, .* they would exceed the 1048576 bytes .*\(EVERTURN_STORED_MEGABYTES_PER_SUBJECT\): delete/,
);

async function scrape(): Promise<{ text: string }> {
  const response = await fetch(`${server.server.url}/metrics`, { headers: { authorization: 'Bearer key-of-root' } });
  return { text: await response.text() };
}

async function runByMcp(message: string): Promise<string | undefined> {
  const client = new Client({ name: 'test', version: '1' }, { versionNegotiation: { mode: { pin: '2026-07-28' } } });
  const headers = { authorization: 'Bearer key-of-ann' };
  await client.connect(
    new StreamableHTTPClientTransport(new URL(`${server.server.url}/mcp`), { requestInit: { headers } }),
  );
  const result = await client.callTool({ name: 'run_agent', arguments: { agent: 'helper', message } });
  await client.close();
  return (result as { content: { text?: string }[] }).content[0]?.text;
}
