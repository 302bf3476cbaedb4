import { afterAll, beforeAll, expect, test } from 'vitest';
import { TestMcpServer } from '../support/mcp-server.ts';
import { say, use } from '../support/scripted-model.ts';
import { startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

let server: TestServer;
let other: TestMcpServer;
beforeAll(async () => {
  const tools = [
    { name: 'find', annotations: { readOnlyHint: true }, handler: () => 'found by the other' },
    { name: 'erase', annotations: { destructiveHint: true }, handler: () => 'erased by the other' },
  ];
  other = await TestMcpServer.start({ tools });
  server = await startTestServer({
    mcp: { tools: [{ name: 'find', annotations: { readOnlyHint: true }, handler: () => 'found by test' }] },
    servers: { other: { url: other.url } },
  });
});
afterAll(async () => {
  await server.stop();
  await other.stop();
});

function specOf(...names: string[]) {
  return { mcp_servers: names.map((name) => ({ type: 'truefoundry-mcp-registry' as const, name })) };
}

/** The tools of the `n`-th request to the model. */
function offered(chat: Chat, n: number): string[] {
  return (chat.requests()[n]?.tools ?? []).map(({ function: { name } }) => name);
}

test('tools of the same name are distinguished by servers, and each call goes to its own', async () => {
  const chat = await server.chat({
    scripts: [use({ name: 'test__find', id: 'a' }, { name: 'other__find', id: 'b' }), say('Both.')],
    spec: specOf('test', 'other'),
  });
  const reader = chat.turn('find');
  await reader.end();
  expect(offered(chat, 0)).toEqual([
    'ask_user_question',
    'create_sub_agent',
    'test__find',
    'other__find',
    'other__erase',
  ]);
  const responses = (await reader.done).filter((frame) => frame.type === 'tool.response');
  expect(Object.fromEntries(responses.map(({ tool_call_id: id, content }) => [id, content]))).toEqual({
    a: 'found by test',
    b: 'found by the other',
  });
});

test('tools of the client and of Everturn keep their names', async () => {
  const chat = await server.chat({
    spec: { ...specOf('test'), client_tools: [{ name: 'find', input_schema: { type: 'object' } }] },
  });
  await chat.turn('hi').done;
  expect(offered(chat, 0)).toEqual(['ask_user_question', 'create_sub_agent', 'find', 'test__find']);
});

test('a server that stops during a conversation renames nothing, and calls that wait for it find it again', async () => {
  const chat = await server.chat({
    scripts: [
      use({ name: 'other__erase', id: 'e1' }),
      use({ name: 'test__find', id: 'f1' }),
      async (call) => {
        await other.stop();
        call.toolCall('test__find', {}, 'f2').finish();
      },
      say('Gone.'),
      async (call) => {
        await other.restart();
        call.toolCall('other__find', {}, 'f3').finish();
      },
      say('Back.'),
    ],
    spec: specOf('test', 'other'),
  });
  expect(await chat.turn('erase').end()).toMatchObject({ output: null });
  const allow = { type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'e1', approval: { status: 'allow' } };
  const second = chat.turn([allow]);
  expect(await second.end()).toMatchObject({ output: { content: 'Gone.' } });
  const contents = (await second.done).flatMap((frame) => (frame.type === 'tool.response' ? [frame.content] : []));
  expect(contents).toEqual(['erased by the other', 'found by test', 'found by test']);
  expect(offered(chat, 3)).toEqual(['ask_user_question', 'create_sub_agent', 'test__find']);
  // It was called by a name that was not offered at that time, and is available again.
  const third = chat.turn('again');
  expect(await third.end()).toMatchObject({ output: { content: 'Back.' } });
});
