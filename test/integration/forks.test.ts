import { afterAll, beforeAll, expect, test } from 'vitest';
import { say, textOf, use } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type TestServer } from '../support/test-server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({
    mcp: { tools: [{ name: 'write', annotations: { destructiveHint: true }, handler: () => 'written' }] },
  });
});
afterAll(() => server.stop());

test('a turn follows the last one, none, or the one that it names', async () => {
  const chat = await server.chat({ scripts: ['A', 'B', 'C', 'D', 'E'].map(say) });
  const ids: string[] = [];
  const ask = async (text: string, previous: unknown): Promise<string | null | undefined> => {
    const reader = chat.turn(text, { previous_turn_id: previous });
    const created = await reader.type('turn.created');
    await reader.done;
    ids.push(created.turn_id);
    return created.previous_turn_id;
  };
  expect(await ask('a', undefined)).toBe(null);
  expect(await ask('b', 'auto')).toBe(ids[0]);
  expect(await ask('c', ids[0])).toBe(ids[0]); // a fork
  expect(await ask('d', null)).toBe(ids[2]); // the tip is the newest turn
  expect(await ask('e', 'none')).toBe(null); // a new root
  expect(chat.requests().map(({ messages }) => messages.map(textOf).join(' '))).toEqual([
    'a',
    'a A b',
    'a A c',
    'a A c C d',
    'e',
  ]);
  // Lists show the chain of the last turn; the other turns still exist.
  expect((await server.api.list<{ id: string }>(`${chat.path}/turns`, 25)).map(({ id }) => id)).toEqual([ids[4]]);
  const forked = await server.api.list<{ turn_id: string }>(`${chat.path}/events?last_turn_id=${ids[3]}`);
  expect([...new Set(forked.map(({ turn_id: id }) => id))]).toEqual([ids[3], ids[2], ids[0]]);
  expect((await server.api.get(`${chat.path}/turns/${ids[1]}`)).data.state.output.content).toBe('B');
});

test('an unknown turn, and a turn of another session, cannot be followed', async () => {
  const [chat, other] = [await server.chat(), await server.chat()];
  await chat.turn('hi').done;
  const elsewhere = other.turn('hi');
  await elsewhere.done;
  for (const id of ['turn_nowhere', await elsewhere.turnId()]) {
    const answer = await server.api.send('POST', `${chat.path}/turns`, {
      input: [{ type: 'user.message', content: 'x' }],
      previous_turn_id: id,
    });
    expect([answer.status, answer.body.error.code]).toEqual([404, 'turn_not_found']);
  }
  const foreign = `${chat.path}/turns/${await elsewhere.turnId()}`;
  for (const path of [foreign, `${foreign}/events`, `${chat.path}/events?last_turn_id=${await elsewhere.turnId()}`]) {
    expect((await server.api.send('GET', path)).status, path).toBe(404);
  }
  expect((await server.api.send('POST', `${foreign}/subscribe`, {})).status).toBe(404);
});

test('a fork can leave a paused turn, which can be continued later', async () => {
  const write = use({ name: 'write', id: 'w1' });
  const chat = await server.chat({
    scripts: [say('ready'), write, say('other'), say('written then')],
    spec: onTestServer,
  });
  const first = chat.turn('hello');
  await first.done;
  const paused = chat.turn('write');
  await paused.done;
  await chat.turn('something else', { previous_turn_id: await first.turnId() }).done;
  const approval = { type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'w1', approval: { status: 'allow' } };
  const late = chat.turn([approval], { previous_turn_id: await paused.turnId() });
  expect(await late.end()).toMatchObject({ status: 'done', output: { content: 'written then' } });
  expect(
    chat
      .requests()
      .at(-1)
      ?.messages.map(({ content }) => content),
  ).toEqual(['hello', 'ready', 'write', null, 'written']);
});

test('the calls of a paused turn are answered once, on any branch; other branches continue without them', async () => {
  const chat = await server.chat({
    scripts: [use({ name: 'write', id: 'w1' }), say('written then'), say('never mind')],
    spec: onTestServer,
  });
  const paused = chat.turn('write');
  await paused.done;
  const from = { previous_turn_id: await paused.turnId() };
  const approval = { type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'w1', approval: { status: 'allow' } };
  const before = server.mcp.calls.length;
  await chat.turn([approval], from).done;
  const again = await server.api.send('POST', `${chat.path}/turns`, { input: [approval], ...from });
  expect([again.status, again.body.error.code]).toEqual([422, 'call_not_pending']);
  expect(await chat.turn('no, something else', from).end()).toMatchObject({ output: { content: 'never mind' } });
  expect(server.mcp.calls.length - before).toBe(1);
  const last = chat.requests().at(-1)?.messages ?? [];
  expect(last.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool', 'user']);
  expect(last[2]?.content).toMatch(/not executed here/);
});
