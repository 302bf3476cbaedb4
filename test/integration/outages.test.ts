import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { folded } from '../support/api-client.ts';
import { startOwnTemporal, type OwnTemporal } from '../support/own-temporal.ts';
import { held, say, use } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type TestServer } from '../support/test-server.ts';

let temporal: OwnTemporal;
let temporalDir: string;
let server: TestServer;
beforeEach(async () => {
  temporalDir = await mkdtemp(path.join(tmpdir(), 'everturn-outage-'));
  temporal = await startOwnTemporal({}, temporalDir);
  server = await startTestServer({
    env: { TEMPORAL_ADDRESS: temporal.address },
    mcp: { tools: [{ name: 'look', annotations: { readOnlyHint: true }, handler: () => 'seen' }] },
  });
});
afterEach(async () => {
  await server.stop();
  await temporal.stop();
  await rm(temporalDir, { recursive: true, force: true });
});

test('Temporal away: 503 and never a false success; ended turns are read from the archive', async () => {
  const chat = await server.chat({ scripts: [use({ name: 'look' }), say('all in the archive')], spec: onTestServer });
  const reader = chat.turn('hi');
  const frames = await reader.done;
  const turnId = await reader.turnId();
  const archived = () =>
    new DatabaseSync(path.join(server.dataDir, 'catalog.db'), { readOnly: true })
      .prepare('SELECT archived FROM turns WHERE id = ?')
      .get(turnId)?.['archived'];
  await expect.poll(archived).toBe(1);

  await temporal.stop();
  const created = await server.api.send('POST', `${chat.path}/turns`, {
    input: [{ type: 'user.message', content: 'x' }],
  });
  expect([created.status, created.body.error.code]).toEqual([503, 'unavailable']);
  expect(Number(created.headers.get('retry-after'))).toBeGreaterThan(0);
  expect((await server.api.send('POST', `${chat.path}/cancel`, {})).status).toBe(503);
  const ready = await server.api.send('GET', '/readyz');
  expect([ready.status, ready.body.problems[0]]).toEqual([503, expect.stringMatching(/^Temporal can not be reached/)]);

  expect((await server.api.get(`${chat.path}/turns/${turnId}`)).data.state.status).toBe('done');
  expect(folded(await server.api.subscribe(chat.sessionId, turnId).done)).toEqual(folded(frames));
  expect((await server.api.list(`${chat.path}/turns/${turnId}/events`)).length).toBe(4);

  // Back again, everything works, and what was refused has not happened.
  temporal = await startOwnTemporal({}, temporalDir);
}, 90_000);

test('the catalog away: readiness says so, running turns go on, the archive catches up', async () => {
  const model = held(
    (call) => call.text('I go '),
    (call) => call.text('on').finish(),
  );
  const chat = await server.chat({ scripts: [model.script] });
  const reader = chat.turn('hi');
  await reader.says('I go');
  // Somebody else holds the database: every write of ours fails as on a full disk.
  const other = new DatabaseSync(path.join(server.dataDir, 'catalog.db'));
  other.exec('BEGIN EXCLUSIVE');
  try {
    model.release();
    expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'I go on' } });
    const ready = await server.api.send('GET', '/readyz');
    expect([ready.status, ready.body.problems[0]]).toEqual([
      503,
      expect.stringMatching(/^the catalog can not be written/),
    ]);
    const refused = await server.api.send('POST', `${chat.path}/turns`, {
      input: [{ type: 'user.message', content: 'x' }],
    });
    expect(refused.status).toBe(503);
  } finally {
    other.exec('ROLLBACK');
    other.close();
  }
  const turnId = await reader.turnId();
  const archive = new DatabaseSync(path.join(server.dataDir, 'catalog.db'), { readOnly: true });
  const archived = () => archive.prepare('SELECT archived FROM turns WHERE id = ?').get(turnId)?.['archived'];
  await expect.poll(archived, { timeout: 40_000 }).toBe(1);
  archive.close();
  expect((await chat.turn('more').end()).status).toBe('done');
}, 120_000);

test('the disk of the blobs full: readiness says so', async () => {
  const blobs = path.join(server.dataDir, 'blobs');
  expect((await server.api.get('/readyz')).status).toBe('ready');
  await rm(blobs, { recursive: true, force: true });
  await import('node:fs/promises').then(({ writeFile }) => writeFile(blobs, 'not a folder'));
  const ready = await server.api.send('GET', '/readyz');
  expect([ready.status, ready.body.problems[0]]).toEqual([
    503,
    expect.stringMatching(/^the blob store can not be written/),
  ]);
  await chmod(blobs, 0o600);
});
