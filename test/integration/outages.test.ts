import { mkdir, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { sql } from 'kysely';
import { afterEach, beforeEach, expect, inject, onTestFinished, test, vi } from 'vitest';
import { FolderBlobStore } from '../../src/blobs/folder-blob-store.ts';
import { folded } from '../support/api-client.ts';
import { held, say, use } from '../support/scripted-model.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { onTestServer, startTestServer, type TestServer } from '../support/test-server.ts';

let proxy: TcpProxy;
let server: TestServer;
beforeEach(async () => {
  proxy = await TcpProxy.start(inject('temporalAddress'));
  server = await startTestServer({
    env: { TEMPORAL_ADDRESS: proxy.address },
    mcp: { tools: [{ name: 'look', annotations: { readOnlyHint: true }, handler: () => 'seen' }] },
  });
});
afterEach(async () => {
  await server.stop();
  await proxy.stop();
});

/** Whether the catalog marks a turn as archived. */
async function isArchived(turnId: string): Promise<boolean> {
  const { rows } = server.database;
  const turn = await rows.selectFrom('turns').select('archived').where('id', '=', turnId).executeTakeFirst();
  return turn?.archived === 1;
}

test('Temporal unavailable: 503 and never a false success; ended turns are read from the archive', async () => {
  const chat = await server.chat({ scripts: [use({ name: 'look' }), say('all in the archive')], spec: onTestServer });
  const reader = chat.turn('hi');
  const frames = await reader.done;
  const turnId = await reader.turnId();
  await expect.poll(() => isArchived(turnId)).toBe(true);

  proxy.down();
  const created = await server.api.send('POST', `${chat.path}/turns`, {
    input: [{ type: 'user.message', content: 'x' }],
  });
  expect([created.status, created.body.error.code]).toEqual([503, 'unavailable']);
  expect(Number(created.headers.get('retry-after'))).toBeGreaterThan(0);
  expect((await server.api.send('POST', `${chat.path}/cancel`, {})).status).toBe(503);
  const ready = await server.api.send('GET', '/readyz');
  // The stores may be too slow for a check.
  expect([ready.status, ready.body.problems]).toEqual([
    503,
    expect.arrayContaining([expect.stringMatching(/^Temporal cannot be reached/)]),
  ]);

  expect((await server.api.get(`${chat.path}/turns/${turnId}`)).data.state.status).toBe('done');
  expect(folded(await server.api.subscribe(chat.sessionId, turnId).done)).toEqual(folded(frames));
  expect((await server.api.list(`${chat.path}/turns/${turnId}/events`)).length).toBe(4);
  expect((await server.api.list(`${chat.path}/turns`, 25)).length).toBe(1);
  expect((await server.api.list(`${chat.path}/events`)).length).toBe(6);

  // Available again: the rejected requests had no effect, and everything works.
  proxy.up();
  await expect.poll(async () => (await server.api.send('GET', '/readyz')).status).toBe(200);
  expect((await server.api.list(`${chat.path}/turns`, 25)).length).toBe(1);
  expect((await chat.turn('are you there?').end()).status).toBe('done');
});

test('Temporal unavailable during a turn: its readers wait, and it continues', async () => {
  const model = held(
    (call) => call.text('I was '),
    (call) => call.text('saying').finish(),
  );
  const chat = await server.chat({
    scripts: [use({ name: 'look' }), model.script, say('I was saying')],
    spec: onTestServer,
  });
  const reader = chat.turn('hi');
  await reader.says('I was');
  proxy.down();
  model.release();
  await expect.poll(async () => (await server.api.send('GET', '/readyz')).status).toBe(503);
  proxy.up();
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'I was saying' } });
  const replay = await server.api.subscribe(chat.sessionId, await reader.turnId()).done;
  expect(folded(await reader.done)).toEqual(folded(replay));
});

test('the catalog unavailable: readiness says so, running turns continue, the archive catches up', async () => {
  const model = held(
    (call) => call.text('I go '),
    (call) => call.text('on').finish(),
  );
  const chat = await server.chat({ scripts: [model.script] });
  const reader = chat.turn('hi');
  await reader.says('I go');
  const bringBack = await server.database.takeAway();
  try {
    model.release();
    expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'I go on' } });
    const ready = await server.api.send('GET', '/readyz');
    expect([ready.status, ready.body.problems[0]]).toEqual([503, expect.stringMatching(/^the catalog cannot be used/)]);
    const refused = await server.api.send('POST', `${chat.path}/turns`, {
      input: [{ type: 'user.message', content: 'x' }],
    });
    expect([refused.status, refused.body.error.code]).toEqual([503, 'unavailable']);
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
  } finally {
    await bringBack();
  }
  const turnId = await reader.turnId();
  await expect.poll(() => isArchived(turnId)).toBe(true);
  expect((await chat.turn('more').end()).status).toBe('done');
});

test('the catalog of an older backup restored under the server: readiness says so', async () => {
  const { rows } = server.database;
  await expect.poll(async () => (await server.api.send('GET', '/readyz')).status).toBe(200);
  await sql`alter table run_secrets rename to away`.execute(rows);
  const problem = async () => (await server.api.send('GET', '/readyz')).body.problems[0];
  try {
    await expect.poll(problem).toMatch(/^the catalog cannot be used: it is incomplete: .*run_secrets/);
  } finally {
    await sql`alter table away rename to run_secrets`.execute(rows);
  }
  await expect.poll(async () => (await server.api.send('GET', '/readyz')).status).toBe(200);
});

test('the disk of the blobs full: readiness says so', async () => {
  const blobs = path.join(server.dataDir, 'blobs');
  await expect.poll(async () => (await server.api.send('GET', '/readyz')).status).toBe(200);
  await rm(blobs, { recursive: true, force: true });
  await writeFile(blobs, 'not a folder');
  // A successful check is cached for a second.
  const problem = async () => (await server.api.send('GET', '/readyz')).body.problems[0];
  await expect.poll(problem).toMatch(/^the blob store cannot be written/);
  expect((await server.api.send('GET', '/readyz')).status).toBe(503);
});

test('the blobs unavailable when a large response arrives: it is stored as soon as they are available, and not requested again', async () => {
  const model = held(
    (call) => call.text('x'.repeat(200_000)),
    (call) => call.finish(),
  );
  const chat = await server.chat({ scripts: [model.script] });
  const reader = chat.turn('hi');
  await model.reached;
  const folder = path.join(server.dataDir, 'blobs', chat.sessionId);
  await mkdir(path.dirname(folder), { recursive: true });
  await writeFile(folder, 'in the way');
  const put = vi.spyOn(FolderBlobStore.prototype, 'put');
  onTestFinished(() => put.mockRestore());
  model.release();
  await expect.poll(() => put.mock.settledResults.some(({ type }) => type === 'rejected')).toBe(true);
  await rm(folder);
  expect(await reader.end()).toMatchObject({ status: 'done', metrics: { total_output_tokens: 5 } });
  expect(chat.requests().length).toBe(1);
});
