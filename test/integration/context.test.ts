import { afterAll, beforeAll, expect, test } from 'vitest';
import { say, textOf, use } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

const LOG = Array.from({ length: 20_000 }, (_, i) => `line ${i}: all is well\n`)
  .join('')
  .replace('line 12345: all', 'line 12345: NOT');

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({
    mcp: {
      tools: [
        { name: 'get_log', description: 'Gets the log.', annotations: { readOnlyHint: true }, handler: () => LOG },
        { name: 'look', description: 'Looks.', annotations: { readOnlyHint: true }, handler: () => 'seen' },
      ],
    },
  });
});
afterAll(() => server.stop());

const read = (args: object, id: string) => use({ name: 'read_tool_response', args, id });

function offersRead(chat: Chat, n: number): boolean {
  return (chat.requests()[n]?.tools ?? []).some(({ function: { name } }) => name === 'read_tool_response');
}

/** What the model has received last with a request. */
function lastText(chat: Chat, n: number): string {
  return textOf(chat.requests()[n]?.messages.at(-1));
}

test('the model reads and searches a large result, in its turn, in later turns and in forks', async () => {
  const at = LOG.indexOf('NOT');
  const chat = await server.chat({
    scripts: [
      use({ name: 'get_log', id: 'l1' }),
      read({ tool_call_id: 'l1', search: 'not is well' }, 'r1'),
      read({ tool_call_id: 'l1', offset: at - 12, length: 30 }, 'r2'),
      say('Line 12345.'),
      read({ tool_call_id: 'l1', offset: at, length: 3 }, 'r3'),
      say('Later.'),
      read({ tool_call_id: 'l1', offset: at, length: 3 }, 'r4'),
      say('Fork.'),
      read({ tool_call_id: 'l1' }, 'r5'),
      say('Root.'),
    ],
    spec: onTestServer,
  });
  const first = chat.turn('what is wrong?');
  expect(await first.end()).toMatchObject({ output: { content: 'Line 12345.' } });
  expect([0, 1, 2, 3].map((n) => offersRead(chat, n))).toEqual([false, true, true, true]);
  expect(lastText(chat, 1)).toContain(`of the ${LOG.length} characters of this result are left out here`);
  expect(lastText(chat, 2)).toMatch(new RegExp(`^\\[1 matches.*\\[at ${at}\\] .*line 12345: NOT is well`, 's'));
  expect(lastText(chat, 3)).toBe(
    `[characters ${at - 12} to ${at + 18} of ${LOG.length}]\n${LOG.slice(at - 12, at + 18)}`,
  );
  const responses = (await first.done).filter((frame) => frame.type === 'tool.response');
  expect(responses.map(({ tool_call_id: id, outcome }) => [id, outcome])).toEqual([
    ['l1', 'succeeded'],
    ['r1', 'succeeded'],
    ['r2', 'succeeded'],
  ]);
  await chat.turn('again').done;
  expect(lastText(chat, 5)).toContain('\nNOT');
  await chat.turn('fork', { previous_turn_id: await first.turnId() }).done;
  expect(lastText(chat, 7)).toContain('\nNOT');
  // Another branch of the same session has no such result.
  await chat.turn('root', { previous_turn_id: 'none' }).done;
  expect(lastText(chat, 9)).toBe('This conversation has no result of a tool call with the id l1.');
});

test('a message reads a limited number of results', async () => {
  const calls = Array.from({ length: 21 }, (_, i) => ({
    name: 'read_tool_response',
    args: { tool_call_id: 'l1', length: 1 },
    id: `r${i}`,
  }));
  const chat = await server.chat({
    scripts: [use({ name: 'get_log', id: 'l1' }), use(...calls), say('Ok.')],
    spec: onTestServer,
  });
  await chat.turn('read').done;
  const texts = (chat.requests()[2]?.messages ?? []).slice(-21).map(textOf);
  expect(texts.slice(0, 20).every((text) => text.startsWith('[characters 0 to 1 '))).toBe(true);
  expect(texts[20]).toBe('This call was not executed: a message may read at most 20 results.');
});

test('an agent whose results are not cut has no tool to read them', async () => {
  const config = { context_management: { large_tool_response: { enabled: false } } };
  const chat = await server.chat({
    scripts: [use({ name: 'get_log' }), say('Long.')],
    spec: { ...onTestServer, config },
  });
  await chat.turn('go').done;
  expect(offersRead(chat, 1)).toBe(false);
});
