import { afterAll, beforeAll, expect, test } from 'vitest';
import { folded } from '../support/api-client.ts';
import { held, say, use } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

/** What a client does to a running turn: it pauses and resumes it. */

let server: TestServer;
let slow = Promise.withResolvers<void>();
const calls: string[] = [];
beforeAll(async () => {
  server = await startTestServer({
    mcp: {
      tools: [
        {
          name: 'look',
          annotations: { readOnlyHint: true },
          handler: () => {
            calls.push('look');
            return 'seen';
          },
        },
        {
          name: 'slow',
          handler: async () => {
            calls.push('slow');
            await slow.promise;
            return 'slow is done';
          },
        },
      ],
    },
  });
});
afterAll(() => server.stop());

const send = async ({ path }: Pick<Chat, 'path'>, command: string) => {
  const { status, body } = await server.api.send('POST', `${path}/${command}`, {});
  return [status, 'error' in body ? body.error.code : body];
};

const DONE = [200, {}];
const by = { subject_id: 'local', subject_type: 'user', subject_slug: 'local' };
const isSteering = ({ type }: { type: string }) => /^turn\.(paused|resumed)/.test(type);

test('a paused turn ends what runs and begins nothing, across a restart, until it is resumed', async () => {
  slow = Promise.withResolvers();
  const chat = await server.chat({
    scripts: [use({ name: 'slow', id: 's1' }), use({ name: 'look', id: 'l1' }), say('Well.')],
    spec: onTestServer,
  });
  expect(await send(chat, 'pause')).toEqual([409, 'nothing_running']);
  const reader = chat.turn('go');
  await expect.poll(() => calls.includes('slow')).toBe(true);
  expect(await send(chat, 'resume')).toEqual(DONE);
  for (let i = 0; i < 2; i++) expect(await send(chat, 'pause')).toEqual(DONE);
  slow.resolve();
  await reader.next((one) => one.type === 'tool.response');
  const turn = `${chat.path}/turns/${await reader.turnId()}`;
  await expect
    .poll(async () => (await server.api.get(turn)).data.state)
    .toEqual({ status: 'running', paused: ['requested'] });
  reader.close();
  await server.restart();
  expect(chat.requests().length).toBe(1);
  const follower = server.api.subscribe(chat.sessionId, await reader.turnId());
  for (let i = 0; i < 2; i++) expect(await send(chat, 'resume')).toEqual(DONE);
  expect(await follower.end()).toMatchObject({ status: 'done', output: { content: 'Well.' } });
  const events = (await follower.done).filter(({ type }) => !/^(model|mcp)/.test(type));
  expect(events).toMatchObject([
    { type: 'turn.created' },
    { type: 'turn.paused', reason: 'requested', by },
    { type: 'tool.response', tool_call_id: 's1', outcome: 'succeeded' },
    { type: 'turn.resumed', reason: 'requested', by },
    { type: 'tool.response', tool_call_id: 'l1' },
    { type: 'turn.done' },
  ]);
  expect(folded(await follower.done).slice(1, -1)).toEqual(await server.api.list(`${turn}/events`));
  for (const command of ['pause', 'resume']) expect(await send(chat, command)).toEqual([409, 'nothing_running']);
});

test('a paused turn runs no tool of the message that was in progress, and a cancel ends it', async () => {
  const model = held(
    (call) => call.text('Wait.'),
    (call) => {
      call.toolCall('look', {}, 'l1');
      call.finish();
    },
  );
  const chat = await server.chat({ scripts: [model.script], spec: onTestServer });
  const reader = chat.turn('go');
  await reader.says('Wait.');
  expect(await send(chat, 'pause')).toEqual(DONE);
  calls.length = 0;
  model.release();
  await reader.next((one) => one.type === 'model.message.delta' && one.finish_reason === 'tool_calls');
  expect((await server.api.send('POST', `${chat.path}/cancel`, {})).status).toBe(200);
  expect(await reader.end()).toMatchObject({ status: 'cancelled', reason: 'client-cancelled' });
  expect((await reader.done).filter((one) => isSteering(one) || one.type === 'tool.response')).toMatchObject([
    { type: 'turn.paused' },
    { type: 'tool.response', tool_call_id: 'l1', outcome: 'cancelled' },
  ]);
  expect(calls).toEqual([]);
});

test('a pause holds the sub-agents, too', async () => {
  const chat = await server.chat({ spec: onTestServer });
  const models = ['first', 'second'].map((name) => {
    const model = held(
      () => undefined,
      (call) => {
        call.toolCall('look', {}, 'l1');
        call.finish();
      },
    );
    server.model.script(`${chat.agent}-${name}`, model.script, say(`${name} is done.`));
    return { name, ...model };
  });
  const starts = models.map(({ name }) => ({
    name: 'create_sub_agent',
    id: `call_${name}`,
    args: { name, input: 'look', model: `${chat.agent}-${name}` },
  }));
  chat.script(use(...starts), say('Both are done.'));
  const reader = chat.turn('go');
  await Promise.all(models.map(({ reached }) => reached));
  calls.length = 0;
  expect(await send(chat, 'pause')).toEqual(DONE);
  for (const { release } of models) release();
  const ended = new Set<string>();
  await reader.next((one) => {
    if (one.type === 'model.message.delta' && one.finish_reason && one.thread_id !== 'main') ended.add(one.thread_id);
    return ended.size === 2;
  });
  expect(calls).toEqual([]);
  expect(await send(chat, 'resume')).toEqual(DONE);
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Both are done.' } });
  expect(calls).toEqual(['look', 'look']);
  const order = (await reader.done).filter((one) => isSteering(one) || one.type === 'tool.response');
  expect(order.slice(0, 2).map(({ type }) => type)).toEqual(['turn.paused', 'turn.resumed']);
});
