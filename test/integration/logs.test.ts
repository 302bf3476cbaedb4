import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { deleteSessionWorkflowId } from '../../src/core/temporal-names.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import { late } from '../support/mcp-server.ts';
import { held, say, use } from '../support/scripted-model.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { onTestServer, startTestServer, type TestServer } from '../support/test-server.ts';

/** One line of the log. */
type Line = Record<string, unknown>;

const TRACE = 10;
const WARN = 40;

const lines: Line[] = [];
let proxy: TcpProxy;
let server: TestServer;
beforeAll(async () => {
  proxy = await TcpProxy.start(inject('temporalAddress'));
  const destination = { write: (line: string) => void lines.push(JSON.parse(line) as Line) };
  server = await startTestServer({
    env: { TEMPORAL_ADDRESS: proxy.address },
    log: createLogger({ logLevel: 'trace' }, destination),
    mcp: { tools: [{ name: 'look', annotations: { readOnlyHint: true }, handler: () => late('seen') }] },
  });
});
afterAll(async () => {
  await server.stop();
  await proxy.stop();
});

/** The SDK logs the start before it decodes the arguments: at that point only the workflow's id is known. */
const isInformed = ({ msg }: Line) => !/^(?:Starting activity|Activity started|Workflow started)$/.test(String(msg));
const about = (text: string) => lines.filter((line) => JSON.stringify(line).includes(text));

test('every line about a turn names the turn, its session and the request that caused it', async () => {
  const chat = await server.chat({
    scripts: [(call) => call.fail(500, 'not now'), use({ name: 'look' }), say('Done.')],
    spec: onTestServer,
  });
  const requestId = 'proxy-4f1c.2026:77';
  const reader = chat.turn('go', {}, { 'x-request-id': requestId });
  await reader.done;
  const turnId = await reader.turnId();
  // The worker's last line about it comes after the client has its end.
  await expect.poll(() => about(turnId).map(({ msg }) => msg)).toContain('Workflow completed');
  const ofTurn = about(turnId).filter(isInformed);
  const ids = { sessionId: chat.sessionId, turnId, requestId };
  for (const line of ofTurn) expect(line).toMatchObject(ids);
  for (const activityType of ['callModel', 'callTool']) {
    expect(ofTurn).toContainEqual(expect.objectContaining({ ...ids, activityType, attempt: expect.any(Number) }));
  }
  expect(ofTurn).toContainEqual(expect.objectContaining({ ...ids, msg: 'Workflow completed', workflowType: 'turn' }));
  expect(ofTurn).toContainEqual(expect.objectContaining({ ...ids, res: { statusCode: 200 } }));
  const ofAttempt = { ...ids, activityType: 'callModel', attempt: 1 };
  expect(ofTurn).toContainEqual(expect.objectContaining({ ...ofAttempt, msg: 'Activity failed', level: TRACE }));
  // At the default level the line that is left names the model and the reason.
  expect(ofTurn.filter(({ level }) => level === WARN)).toEqual([
    expect.objectContaining({
      ...ofAttempt,
      provider: 'openai',
      model: chat.agent,
      address: new URL(server.model.url).host,
      failure: 'overloaded',
      status: 500,
      msg: 'a model call failed; it is repeated',
    }),
  ]);
  for (const line of about(chat.sessionId)) expect(line).toMatchObject({ sessionId: chat.sessionId });
});

test('every line about the removal of a session names the session and the request that deleted it', async () => {
  const chat = await server.chat();
  await chat.turn('go').done;
  const from = lines.length;
  const requestId = 'proxy-delete.2026:78';
  expect((await server.api.send('DELETE', chat.path, undefined, { 'x-request-id': requestId })).status).toBe(204);
  const workflowId = deleteSessionWorkflowId(chat.sessionId);
  const ofRemoval = () => lines.slice(from).filter((line) => line['workflowId'] === workflowId);
  await expect.poll(ofRemoval).toContainEqual(expect.objectContaining({ msg: 'Workflow completed' }));
  const ids = { sessionId: chat.sessionId, requestId };
  for (const line of ofRemoval().filter(isInformed)) expect(line).toMatchObject(ids);
  for (const activityType of ['endSession', 'removeSession']) {
    expect(ofRemoval()).toContainEqual(
      expect.objectContaining({ ...ids, activityType, msg: 'Activity completed', attempt: 1 }),
    );
  }
});

test('a request keeps its id throughout, and gets a new one if it has none that may be logged', async () => {
  const chat = await server.chat();
  for (const given of [undefined, 'short', 'x'.repeat(200), 'a b c d e f g h', '{"turnId":"turn_1"}']) {
    const answer = await server.api.send('GET', `${chat.path}/turns/turn_none`, undefined, {
      ...(given && { 'x-request-id': given }),
    });
    const requestId = answer.headers.get('x-request-id');
    expect([answer.status, requestId]).toEqual([404, expect.stringMatching(/^req_[0-9a-z]{26}$/)]);
    const ids = { requestId, sessionId: chat.sessionId, turnId: 'turn_none' };
    await expect.poll(() => lines).toContainEqual(expect.objectContaining({ ...ids, res: { statusCode: 404 } }));
  }
  const given = '0b9e6f0c-5b0a-4a51-9d0b-3d8b2c1f7a10';
  const answer = await server.api.send('GET', '/healthz', undefined, { 'x-request-id': given });
  expect(answer.headers.get('x-request-id')).toBe(given);
});

test('work for all readers of a turn is logged with the turn, and without a request', async () => {
  const model = held(
    (call) => call.text('I was '),
    (call) => call.text('saying').finish(),
  );
  const chat = await server.chat({ scripts: [model.script, say('I was saying')] });
  const reader = chat.turn('go');
  await reader.says('I was');
  const turnId = await reader.turnId();
  proxy.down();
  const unfollowed = () => about(turnId).find(({ msg }) => String(msg).startsWith('cannot follow a turn'));
  try {
    await expect.poll(unfollowed).toBeDefined();
  } finally {
    proxy.up();
    model.release();
  }
  expect(unfollowed()).toMatchObject({ turnId, sessionId: chat.sessionId });
  expect(unfollowed()).not.toHaveProperty('requestId');
  expect((await reader.end()).status).toBe('done');
});
