import { readdir, utimes, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sha256 } from '../../src/lib/hash.ts';
import { held, say, use } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

/** A sweep that fails, as one may on a busy machine, is repeated after 10 and 20 seconds. */

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({
    // With a key, blobs are not named by their hashes, by which this test finds them.
    env: { EVERTURN_ENCRYPTION_KEYS: '' },
    mcp: { tools: [{ name: 'flood', annotations: { readOnlyHint: true }, handler: () => 'y'.repeat(400_000) }] },
  });
});
afterAll(() => server.stop());

const folderOf = ({ sessionId }: Chat) => path.join(server.dataDir, 'blobs', sessionId);
const bytes = (letter: string) => Buffer.alloc(100_000, letter);
const withFile = (letter: string) => [
  {
    type: 'user.message',
    content: [{ type: 'file', name: 'x', data: `data:text/plain;base64,${bytes(letter).toString('base64')}` }],
  },
];

/** A turn that is rejected after its file was stored. */
async function refused(chat: Chat, letter: string): Promise<string> {
  const { status } = await server.api.send('POST', `${chat.path}/turns`, {
    input: withFile(letter),
    previous_turn_id: 'turn_unknown',
  });
  expect(status).toBe(404);
  return sha256(bytes(letter));
}

/** Makes everything appear to have been stored days ago. */
async function age(chat: Chat): Promise<void> {
  const then = new Date(Date.now() - 3 * 86_400_000);
  for (const name of await readdir(folderOf(chat))) await utimes(path.join(folderOf(chat), name), then, then);
  await server.database.rows
    .updateTable('sessions')
    .set({ unswept_since: then.toISOString() })
    .where('id', '=', chat.sessionId)
    .execute();
}

async function unsweptSince({ sessionId }: Chat): Promise<string | null | undefined> {
  const { rows } = server.database;
  const row = await rows.selectFrom('sessions').selectAll().where('id', '=', sessionId).executeTakeFirst();
  return row?.unswept_since;
}

async function untilArchived({ sessionId }: Chat): Promise<void> {
  const { rows } = server.database;
  const open = () =>
    rows.selectFrom('turns').select('id').where('session_id', '=', sessionId).where('archived', '=', 0).execute();
  await expect.poll(open).toEqual([]);
}

test('blobs that no record names are deleted after a day, the others are kept', { timeout: 120_000 }, async () => {
  const long = 'z'.repeat(200_000);
  const chat = await server.chat({ scripts: [use({ name: 'flood', id: 'f1' }), say(long)], spec: onTestServer });
  await chat.turn(withFile('a')).done;
  await untilArchived(chat);
  const named = (await readdir(folderOf(chat))).toSorted();
  expect(named.length).toBeGreaterThanOrEqual(3);
  const garbage = await refused(chat, 'b');
  // A crash in the middle of a put leaves this.
  await writeFile(path.join(folderOf(chat), '.5b1d9f3c-unfinished'), 'half');
  expect((await readdir(folderOf(chat))).length).toBe(named.length + 2);
  await age(chat);
  const young = await refused(chat, 'c');
  // Storing it again makes it current.
  const again = await refused(chat, 'b');
  expect(again).toBe(garbage);
  await server.restart();
  await expect
    .poll(async () => (await readdir(folderOf(chat))).toSorted())
    .toEqual([...named, garbage, young].toSorted());
  // It is checked again, because it may contain garbage by now.
  await expect.poll(async () => Date.parse((await unsweptSince(chat)) ?? '')).toBeGreaterThan(Date.now() - 60_000);
  await age(chat);
  await server.restart();
  await expect.poll(async () => (await readdir(folderOf(chat))).toSorted()).toEqual(named);
  await expect.poll(() => unsweptSince(chat)).toBe(null);
  // Everything can still be read.
  const events = await server.api.list<{ event: { type: string; content?: string } }>(`${chat.path}/events`);
  expect(events.some(({ event }) => event.type === 'model.message' && event.content === long)).toBe(true);
  for (const [, file] of JSON.stringify(events).matchAll(/"(\/v1\/agents\/sessions\/[^"]*\/files\/[^"]*)"/g)) {
    expect((await fetch(server.api.url + file)).status).toBe(200);
  }
});

test('the blobs of a running turn, which a restored catalog does not have, are kept', async () => {
  const [first, second] = [1, 2].map(() =>
    held(
      (call) => call.text('I read'),
      (call) => call.finish(),
    ),
  );
  const chat = await server.chat({ scripts: [first?.script ?? say(''), second?.script ?? say('')] });
  const reader = chat.turn(withFile('d'));
  await reader.says('I read');
  const turnId = await reader.turnId();
  const { rows } = server.database;
  const turn = () => rows.selectFrom('turns').selectAll().where('id', '=', turnId).executeTakeFirst();
  await expect.poll(turn).toMatchObject({ sequence: 1 });
  await rows.deleteFrom('turns').where('id', '=', turnId).execute();
  await age(chat);
  await server.restart();
  first?.release();
  await expect.poll(async () => Date.parse((await unsweptSince(chat)) ?? '')).toBeGreaterThan(Date.now() - 60_000);
  expect(await readdir(folderOf(chat))).toEqual([sha256(bytes('d'))]);
  expect(await turn()).toMatchObject({ sequence: 1 });
  second?.release();
  expect(await server.api.subscribe(chat.sessionId, turnId).end()).toMatchObject({ status: 'done' });
});
