import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Client, Connection } from '@temporalio/client';
import { pino } from 'pino';
import { loadConfig } from '../../src/config.ts';
import { Cipher } from '../../src/encryption/cipher.ts';
import { startAllInOne } from '../../src/server/all-in-one.ts';
import { dataConverterFor } from '../../src/temporal/data-converter.ts';
import { deleteSessionWorkflowId } from '../../src/core/temporal-names.ts';
import { describeExecution } from '../../src/temporal/describe-workflow.ts';
import { eventually } from '../support/eventually.ts';
import { everturn } from '../support/command-line.ts';
import { DELETES_RUNS_AT_ONCE, startOwnTemporal, type OwnTemporal } from '../support/own-temporal.ts';
import {
  find,
  listenTo,
  plainPayloads,
  readFolder,
  readTables,
  readTemporal,
  type RawStore,
} from '../support/raw-stores.ts';
import { TestRedis } from '../support/redis.ts';
import { say, use } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

/** The tests run in order, each on what the previous ones have stored. */

const [k1 = '', k2 = '', otherK1 = ''] = ['k1', 'k2', 'k1'].map((id) => `${id}:${randomBytes(32).toString('base64')}`);

/** Texts that must not be found. Some are unusual, so that each is found as it was written. */
const SECRETS = {
  message: 'secret-of-the-message',
  answer: 'secret-of-the-answer',
  arguments: 'secret-of-the-arguments',
  result: 'secret-of-the-result',
  toolError: 'secret-of-the-tool-error',
  denial: 'secret-of-the-denial',
  response: 'secret-of-the-client-response',
  instructions: 'secret-of-the-instructions',
  draft: 'secret-of-the-draft',
  draftMessage: 'secret-of-the-draft-message',
  title: 'secret-of-the-title',
  metadata: 'secret-of-the-metadata',
  longText: 'secret-of-the-long-text',
  smallFile: 'secret-of-the-small-file',
  largeFile: 'secret-of-the-large-file',
  fileName: 'secret-of-the-file-name',
  retriedError: 'secret-of-the-retried-error',
  finalError: 'secret-of-the-final-error',
  partOfCancelled: 'secret-of-the-cancelled-answer',
};

/** Compaction would leave out what the tests look for. */
const SPEC = {
  ...onTestServer,
  instructions: SECRETS.instructions,
  config: { context_management: { compaction: { enabled: false } } },
};

let temporal: OwnTemporal;
let redis: TestRedis;
let heard: Awaited<ReturnType<typeof listenTo>>;
let server: TestServer;
/** Created before there were keys. */
let plain: Chat;
/** Its conversation is encrypted under the first key. */
let chat: Chat;
/** Has been waiting for an approval since then. */
let waiting: Chat;

beforeAll(async () => {
  temporal = await startOwnTemporal(DELETES_RUNS_AT_ONCE);
  redis = await TestRedis.start();
  heard = await listenTo(redis.url);
  server = await startTestServer({
    env: {
      TEMPORAL_ADDRESS: temporal.address,
      TEMPORAL_NAMESPACE: temporal.namespace,
      REDIS_URL: redis.url,
      EVERTURN_ENCRYPTION_KEYS: '',
    },
    mcp: {
      tools: [
        { name: 'look', annotations: { readOnlyHint: true }, handler: () => SECRETS.result },
        { name: 'write', annotations: { destructiveHint: true }, handler: () => 'written' },
        {
          name: 'fail',
          annotations: { readOnlyHint: true },
          handler: () => Promise.reject(new Error(SECRETS.toolError)),
        },
      ],
    },
  });
});

afterAll(async () => {
  try {
    // The server's histories are replayed, which needs both keys, whichever test was the last.
    await server.restart({ EVERTURN_ENCRYPTION_KEYS: `${k2},${k1}` });
    await server.stop();
  } finally {
    heard.close();
    await redis.down();
    await temporal.stop();
  }
});

/** Everything that is stored anywhere, by the kind of the store. */
async function stores(): Promise<Record<string, RawStore>> {
  // The turns are archived first.
  const { rows } = server.database;
  const open = rows.selectFrom('turns').select('id').where('archived', '=', 0);
  await expect.poll(() => open.execute()).toEqual([]);
  return {
    Temporal: await readTemporal(temporal),
    "Temporal's database": await readFolder(path.join(temporal.dataDir, 'temporal')),
    catalog: await readTables(rows),
    'data folder': await readFolder(server.dataDir),
    Redis: await heard.store(),
  };
}

/** A Temporal client with these keys. */
async function connected<T>(keys: string, work: (client: Client) => Promise<T>): Promise<T> {
  const connection = await Connection.connect({ address: temporal.address });
  const dataConverter = dataConverterFor(new Cipher(loadConfig({ EVERTURN_ENCRYPTION_KEYS: keys }).encryptionKeys));
  try {
    return await work(
      new Client({ connection, namespace: temporal.namespace, ...(dataConverter && { dataConverter }) }),
    );
  } finally {
    await connection.close();
  }
}

function base64(text: string): string {
  return `data:text/plain;base64,${Buffer.from(text).toString('base64')}`;
}

async function eventsOf({ path: session }: Chat): Promise<string> {
  return JSON.stringify(await server.api.list(`${session}/events`));
}

test('without keys all texts are found: the test searches the right places', async () => {
  plain = await server.chat({
    scripts: [say(`plain-answer ${'plain-blob '.repeat(20_000)}`)],
    spec: { instructions: 'plain-instructions' },
  });
  const file = { type: 'file', name: 'a.txt', data: base64('plain-file') };
  await plain.turn([{ type: 'user.message', content: [{ type: 'text', text: 'plain-message' }, file] }]).end();
  const state = () => server.database.rows.selectFrom('turns').select('state').execute();
  await eventually(async () => expect(await state()).toEqual([{ state: 'ended' }]));
  const found = Object.entries(await stores()).map(([name, store]) => [
    name,
    ...['plain-message', 'plain-answer', 'plain-blob', 'plain-file', 'plain-instructions'].filter(
      (marker) => find(marker, store).length > 0,
    ),
  ]);
  expect(found).toEqual([
    ['Temporal', 'plain-message', 'plain-file'],
    ["Temporal's database", 'plain-message', 'plain-file'],
    ['catalog', 'plain-message', 'plain-answer', 'plain-blob', 'plain-file', 'plain-instructions'],
    ['data folder', 'plain-message', 'plain-answer', 'plain-blob', 'plain-file', 'plain-instructions'],
    ['Redis', 'plain-answer', 'plain-blob'],
  ]);
});

test('with a key none of the texts is in any store', async () => {
  await server.restart({ EVERTURN_ENCRYPTION_KEYS: k1, EVERTURN_ACCEPT_UNENCRYPTED: 'true' });
  // The texts from before can be read, and the conversation continues.
  expect(await eventsOf(plain)).toContain('plain-message');
  plain.script(say(SECRETS.answer));
  await plain.turn(`${SECRETS.message} again`).end();
  expect(JSON.stringify(plain.requests().at(-1)?.messages)).toContain('plain-message');

  chat = await server.chat({ spec: SPEC });
  chat.script(
    (call) => call.fail(500, SECRETS.retriedError),
    use(
      { name: 'look', args: { at: SECRETS.arguments }, id: 'c1' },
      { name: 'fail', id: 'c2' },
      { name: 'write', args: { text: SECRETS.arguments }, id: 'c3' },
      { name: 'write', args: { text: SECRETS.arguments }, id: 'c4' },
      { name: 'ask_user_question', args: { question: SECRETS.arguments }, id: 'c5' },
    ),
    say(`${SECRETS.answer} ${`${SECRETS.longText} `.repeat(10_000)}`),
    (call) => call.fail(400, SECRETS.finalError),
    (call) => void call.text(SECRETS.partOfCancelled),
  );
  const content = [
    { type: 'text', text: `${SECRETS.message}, which is the title too` },
    { type: 'file', name: `${SECRETS.fileName}.txt`, data: base64(SECRETS.smallFile) },
    { type: 'file', name: 'b.txt', data: base64(SECRETS.largeFile.repeat(10_000)) },
  ];
  const first = chat.turn([{ type: 'user.message', content }], {}, { 'idempotency-key': 'once' });
  expect(await first.end()).toMatchObject({ status: 'done', required_actions: [{}, {}] });
  const answers = [
    { type: 'user.tool_approval', tool_call_id: 'c3', approval: { status: 'allow' } },
    { type: 'user.tool_approval', tool_call_id: 'c4', approval: { status: 'deny', reason: SECRETS.denial } },
    { type: 'user.tool_response', tool_call_id: 'c5', content: SECRETS.response },
  ].map((item) => ({ ...item, thread_id: 'main' }));
  expect(await chat.turn(answers).end()).toMatchObject({ status: 'done' });
  expect(await chat.turn('and now?').end()).toMatchObject({ status: 'error' });
  const cancelled = chat.turn('and now?');
  await cancelled.says(SECRETS.partOfCancelled);
  await server.api.send('POST', `${chat.path}/cancel`, {});
  expect(await cancelled.end()).toMatchObject({ status: 'cancelled' });

  const { body } = await server.api.send(
    'POST',
    '/v1/agents/sessions',
    { agent_name: chat.agent, title: SECRETS.title },
    { 'x-tfy-metadata': JSON.stringify({ note: SECRETS.metadata }), 'idempotency-key': 'session' },
  );
  expect((await server.api.get(`/v1/agents/sessions/${body.data.id}`)).data).toMatchObject({
    title: SECRETS.title,
    metadata: { note: SECRETS.metadata },
  });
  const draft = await server.api.send('POST', '/v1/agents/draft-sessions', {
    agent_spec: { model: { name: 'drafted' }, instructions: SECRETS.draft },
  });
  expect(draft.body.data.agent_spec.instructions).toBe(SECRETS.draft);
  await server.api.turn(draft.body.data.id, SECRETS.draftMessage).end();

  waiting = await server.chat({ scripts: [use({ name: 'write', id: 'w1' })], spec: onTestServer });
  await waiting.turn('go').end();

  const said = await eventsOf(chat);
  for (const secret of ['message', 'answer', 'arguments', 'result', 'denial', 'response', 'longText'] as const) {
    expect(said, secret).toContain(SECRETS[secret]);
  }
  expect((await server.api.get(chat.path)).data.title).toContain(SECRETS.message);
  for (const [name, store] of Object.entries(await stores())) {
    for (const secret of Object.values(SECRETS)) expect(find(secret, store), `${secret} in ${name}`).toEqual([]);
    if (name !== 'data folder') expect(find('k1', store), name).not.toEqual([]);
  }
});

test('in Temporal all payloads are encrypted except those without content', async () => {
  const turns = (await server.api.list<{ id: string }>(`${chat.path}/turns`, 25)).map(({ id }) => `turn/${id}`);
  const places = await plainPayloads(temporal, [`session/${chat.sessionId}`, ...turns]);
  const carried = /\.header\.fields\.(everturn-request-id|_tracer-data|everturn-previous-trace)$|\.searchAttributes\./;
  // The last one belongs to local activities: ids and times.
  expect([...places].filter((place) => !carried.test(place))).toEqual([
    '.markerRecordedEventAttributes.details.data.payloads',
  ]);
});

test('files are served and accepted by their names, with their sizes', async () => {
  const [big] = /\/v1\/agents\/sessions\/\w+\/files\/[0-9a-f]{64}[^"]*b\.txt[^"]*/.exec(await eventsOf(chat)) ?? [];
  const bytes = await fetch(server.api.url + big);
  expect(await bytes.text()).toBe(SECRETS.largeFile.repeat(10_000));
  chat.script(say('seen'));
  const turn = chat.turn([{ type: 'user.message', content: [{ type: 'file', name: 'again', data: big }] }]);
  expect(await turn.end()).toMatchObject({ status: 'done' });
  expect(JSON.stringify(chat.requests().at(-1)?.messages)).toContain(SECRETS.largeFile);
});

test('after a rotation old data is readable, waiting turns continue, and new data is under the new key', async () => {
  await server.restart({ EVERTURN_ENCRYPTION_KEYS: `${k2},${k1}` });
  expect(await eventsOf(chat)).toContain(SECRETS.message);
  chat.script(say(`${SECRETS.answer} after the rotation`));
  await chat.turn('and after the rotation?').end();
  expect(JSON.stringify(chat.requests().at(-1)?.messages)).toContain(SECRETS.response);
  waiting.script(say('Done.'));
  const answer = { type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'w1', approval: { status: 'allow' } };
  expect(await waiting.turn([answer]).end()).toMatchObject({ status: 'done', output: { content: 'Done.' } });
  expect(server.mcp.calls.at(-1)?.meta['io.everturn/operation-id']).toMatch(/w1$/);

  // The same request is recognized, and the same agent is the same version.
  const again = await server.api.send(
    'POST',
    '/v1/agents/sessions',
    { agent_name: chat.agent, title: SECRETS.title },
    { 'x-tfy-metadata': JSON.stringify({ note: SECRETS.metadata }), 'idempotency-key': 'session' },
  );
  expect([again.status, again.body.data?.title]).toEqual([201, SECRETS.title]);
  expect(await server.api.list(`/v1/agents/sessions?agent_name=${chat.agent}`)).toHaveLength(2);
  await server.api.putAgent(chat.agent, { ...SPEC, model: { name: chat.agent } });
  expect(await server.api.list(`/v1/agents/${chat.agent}/versions`)).toHaveLength(1);

  const { catalog = new Map<string, Buffer>(), ...others } = await stores();
  expect(String(catalog.get('archive')).match(/sealed:k2:/g)?.length).toBeGreaterThan(3);
  for (const [name, store] of Object.entries({ catalog, ...others })) {
    for (const secret of Object.values(SECRETS)) expect(find(secret, store), `${secret} in ${name}`).toEqual([]);
  }
});

test('`everturn turn inspect` reads encrypted turns, and names a missing key', async () => {
  const [{ id }] = (await server.api.get(`${chat.path}/turns`)).data;
  const env = {
    EVERTURN_DATA: server.dataDir,
    DATABASE_URL: server.database.url,
    TEMPORAL_ADDRESS: temporal.address,
    TEMPORAL_NAMESPACE: temporal.namespace,
  };
  const inspect = (keys: string) => everturn(['turn', 'inspect', id], { ...env, EVERTURN_ENCRYPTION_KEYS: keys });
  expect((await inspect(`${k2},${k1}`)).stdout).toContain(SECRETS.answer);
  const without = await inspect(k1);
  expect([without.code, without.stdout]).toEqual([0, expect.stringContaining('"k2", which EVERTURN_ENCRYPTION_KEYS')]);
  expect(without.stdout).not.toContain(SECRETS.answer);
});

test('without a key that it needs the server does not start, or names it when data is read', async () => {
  const settings = {
    EVERTURN_PORT: '0',
    EVERTURN_DATA: server.dataDir,
    DATABASE_URL: server.database.url,
    TEMPORAL_ADDRESS: temporal.address,
    TEMPORAL_NAMESPACE: temporal.namespace,
  };
  const start = (keys: string) =>
    startAllInOne(loadConfig({ ...settings, EVERTURN_ENCRYPTION_KEYS: keys }), pino({ level: 'silent' }));
  await expect(start('')).rejects.toThrow(
    'EVERTURN_ENCRYPTION_KEYS is not set, but this catalog was encrypted with k1, k2',
  );
  await expect(start(`${k2},${otherK1}`)).rejects.toThrow('is not the key k1 that encrypted this catalog');

  await server.restart({ EVERTURN_ENCRYPTION_KEYS: k2 });
  const { status, body } = await server.api.send('GET', `${chat.path}/events`);
  expect([status, body.error.code]).toEqual([503, 'unavailable']);
  expect(body.error.message).toContain('"k1", which EVERTURN_ENCRYPTION_KEYS does not contain');
  // The reference it depends on must not be lost with the text.
  expect((await server.api.get(chat.path)).data).toMatchObject({ id: chat.sessionId, title: null });
  const titles = await server.api.list<{ title: string | null }>('/v1/agents/sessions');
  expect(titles.map(({ title }) => title)).toContain('plain-message');
});

test('a workflow that the worker cannot decrypt pauses, and no other does', async () => {
  // Its spec can be read, and the history of its session cannot.
  const stuck = server.api
    .send('POST', `${plain.path}/turns`, { input: [{ type: 'user.message', content: 'is anybody there?' }] })
    .catch(() => undefined);
  const problem = await connected(k2, async (client) => {
    const task = async () => (await describeExecution(client, `session/${plain.sessionId}`))?.workflowTask;
    await expect.poll(async () => (await task())?.attempt).toBeGreaterThan(1);
    return (await task())?.failure;
  });
  expect(problem).toContain('"k1", which EVERTURN_ENCRYPTION_KEYS does not contain');
  const fresh = await server.chat({ scripts: [say('I am.')] });
  expect(await fresh.turn('is anybody there?').end()).toMatchObject({ status: 'done' });
  await server.restart({ EVERTURN_ENCRYPTION_KEYS: `${k2},${k1}` });
  await stuck;
  // Temporal rejects commands until it has dispatched the task again.
  const body = { input: [{ type: 'user.message', content: 'and now?' }], stream: false };
  const send = () => server.api.send('POST', `${plain.path}/turns`, body);
  await expect.poll(async () => (await send()).status, { interval: 500 }).toBe(200);
});

test('a session whose key is lost can be deleted', async () => {
  await server.restart({ EVERTURN_ENCRYPTION_KEYS: k2 });
  const { status } = await server.api.send('DELETE', chat.path);
  expect(status).toBe(204);
  const ofSession = server.database.rows.selectFrom('turns').select('id').where('session_id', '=', chat.sessionId);
  await expect.poll(() => ofSession.execute()).toEqual([]);
  // The session's own history is deleted after those of its turns.
  await connected(k2, (client) => client.workflow.getHandle(deleteSessionWorkflowId(chat.sessionId)).result());
  await expect
    .poll(async () =>
      [...(await readTemporal(temporal)).keys()].filter((key) => key.startsWith(`session/${chat.sessionId}`)),
    )
    .toEqual([]);
});
