import { afterAll, beforeAll, expect, test } from 'vitest';
import { held, say, textOf, use, type Script } from '../support/scripted-model.ts';
import type { AgentSpec } from '../../src/spec/agent-spec.ts';
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

/** The last message in a request to the model. */
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

const compacting: Partial<AgentSpec> = {
  ...onTestServer,
  config: { pause: 'wait', context_management: { compaction: { compaction_threshold_tokens: 1_000 } } },
};

const LONG = { prompt_tokens: 3_000, completion_tokens: 5, total_tokens: 3_005 };

/** Answers, and reports an input above the threshold. */
const sayAfterLong =
  (text: string): Script =>
  (call) =>
    call.text(text).finish('stop', LONG);

test('a conversation above the threshold is summarized before the next model call, and later turns read no more', async () => {
  const chat = await server.chat({
    scripts: [sayAfterLong('First.'), say('They said x.'), say('Second.'), say('Third.')],
    spec: compacting,
  });
  const first = chat.turn(`the beginning ${'x'.repeat(3_000)}`);
  await first.done;
  const second = chat.turn('go on');
  expect(await second.end()).toMatchObject({ status: 'done', output: { content: 'Second.' } });
  const [, summary, message] = chat.requests();
  expect(summary?.tools).toBeUndefined();
  expect(textOf(summary?.messages[1])).toMatch(
    /^<conversation>\nUser: the beginning x{3000}\n\nAgent: First\.\n<\/conversation>$/,
  );
  expect(message?.messages.map(textOf)).toEqual([expect.stringMatching(/summarized[^]*They said x\.$/), 'go on']);
  const compacted = (await second.done).find(({ type }) => type === 'context.compacted');
  expect(compacted).toMatchObject({ thread_id: 'main', through: 0, summary: 'They said x.', tokens_before: 3_007 });
  expect((await second.end()).metrics).toMatchObject({
    total_input_tokens: 20,
    model_calls: 2,
    unreported_attempts: 0,
  });
  await chat.turn('and then').done;
  expect(chat.requests()[3]?.messages.map(textOf)).toEqual([
    expect.stringMatching(/They said x\.$/),
    'go on',
    'Second.',
    'and then',
  ]);
  // A fork from before the compaction has the whole conversation, and is compacted by itself.
  chat.script(say('The fork says x.'), say('Fork.'));
  await chat.turn('fork', { previous_turn_id: await first.turnId() }).done;
  expect(textOf(chat.requests()[4]?.messages[1])).toContain('User: the beginning');
  expect(chat.requests()[5]?.messages.map(textOf)).toEqual([expect.stringMatching(/The fork says x\.$/), 'fork']);
});

const above = (threshold: number): Partial<AgentSpec> => ({
  ...onTestServer,
  config: { context_management: { compaction: { compaction_threshold_tokens: threshold } } },
});

test('the results of earlier steps are cleared first, without a model call, and can be read again', async () => {
  const looks: Script = (call) =>
    call.toolCall('look', {}, 'k2').finish('tool_calls', { ...LONG, prompt_tokens: 17_000 });
  const chat = await server.chat({
    scripts: [
      use({ name: 'get_log', id: 'l1' }),
      use({ name: 'look', id: 'k1' }),
      looks,
      read({ tool_call_id: 'l1', length: 6 }, 'r1'),
      say('Done.'),
    ],
    spec: above(10_000),
  });
  const input = [{ type: 'user.message', content: 'look' }];
  const reader = server.api.stream(`${chat.path}/turns?view=full`, { input });
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Done.' } });
  const results = chat
    .requests()[3]
    ?.messages.filter(({ role }) => role === 'tool')
    .map(textOf);
  expect(results).toEqual([
    expect.stringMatching(/^\[This result of \d+ characters was cleared.*l1\]$/),
    'seen',
    'seen',
  ]);
  expect(offersRead(chat, 3)).toBe(true);
  expect(lastText(chat, 4)).toBe(`[characters 0 to 6 of ${LOG.length}]\nline 0`);
  expect(chat.requests()).toHaveLength(5);
  // Clients that may not support the event do not get it.
  const turn = `${chat.path}/turns/${await reader.turnId()}`;
  const typesIn = async (view: 'default' | 'full'): Promise<(string | undefined)[][]> => {
    const stream = await fetch(`${server.server.url}${turn}/stream?view=${view}`);
    const followed = server.api.followSession(chat.sessionId, undefined, 'query', { view });
    await followed.end();
    followed.close();
    const ofTurn = await server.api.list<{ type: string }>(`${turn}/events?view=${view}`, 3);
    const ofSession = await server.api.list<{ event: { type: string } }>(`${chat.path}/events?view=${view}`, 3);
    return [
      [...(await stream.text()).matchAll(/"type":"([a-z._]+)"/g)].map(([, type]) => type),
      (await server.api.stream(`${turn}/subscribe?view=${view}`, {}).done).map(({ type }) => type),
      followed.frames.map(({ type }) => type),
      ofTurn.map(({ type }) => type),
      ofSession.map(({ event }) => event.type),
    ];
  };
  for (const types of await typesIn('default')) expect(types).not.toContain('context.compacted');
  for (const types of await typesIn('full'))
    expect(types.filter((type) => type === 'context.compacted')).toHaveLength(1);
  expect(reader.frames.filter(({ type }) => type === 'context.compacted')).toHaveLength(1);
  expect(await server.api.send('GET', `${turn}/events?view=all`)).toMatchObject({
    status: 400,
    body: { error: { param: 'view' } },
  });
});

const tooLong: Script = (call) =>
  call.fail(400, "This model's maximum context length is 8192 tokens.", {}, { code: 'context_length_exceeded' });

test('a conversation that the model rejects as too long is compacted, and the turn continues', async () => {
  const chat = await server.chat({
    scripts: [say('First.'), tooLong, say('A summary.'), say('Second.')],
    spec: above(50_000),
  });
  await chat.turn('one').done;
  expect(await chat.turn('two').end()).toMatchObject({ status: 'done', output: { content: 'Second.' } });
  expect(chat.requests()[3]?.messages.map(textOf)).toEqual([expect.stringMatching(/A summary\.$/), 'two']);
});

test('a turn whose conversation cannot be made short enough ends with the error of the provider', async () => {
  const chat = await server.chat({
    scripts: [say('First.'), tooLong, say('One.'), tooLong, say('Two.'), tooLong],
    spec: above(50_000),
  });
  await chat.turn('one').done;
  expect(await chat.turn('two').end()).toMatchObject({
    status: 'error',
    message: expect.stringContaining('maximum context length') as string,
  });
  expect(chat.requests()[5]?.messages.map(textOf)).toEqual([expect.stringMatching(/Two\.$/)]);
  expect(chat.requests()).toHaveLength(6);
});

test('a model that writes no summary is asked once more, then the turn ends with an error', async () => {
  const chat = await server.chat({ scripts: [sayAfterLong('First.'), say(''), say('')], spec: compacting });
  await chat.turn('x'.repeat(3_000)).done;
  expect(await chat.turn('two').end()).toMatchObject({
    status: 'error',
    message: expect.stringMatching(
      /^The conversation is too long, and could not be summarized: openai\/\w+: the model gave no summary$/,
    ) as string,
  });
  expect(chat.requests()).toHaveLength(3);
});

test('an agent without compaction gets the error of the provider', async () => {
  const config = { context_management: { compaction: { enabled: false } } };
  const chat = await server.chat({ scripts: [sayAfterLong('First.'), tooLong], spec: { config } });
  await chat.turn('x'.repeat(300_000)).done;
  expect(await chat.turn('two').end()).toMatchObject({ status: 'error' });
  expect(chat.requests()).toHaveLength(2);
});

test('a turn that is cancelled while its conversation is summarized ends as cancelled', async () => {
  const gate = held(
    (call) => call.text('The begin'),
    () => undefined,
  );
  const chat = await server.chat({ scripts: [sayAfterLong('First.'), gate.script, say('Next.')], spec: compacting });
  await chat.turn('x'.repeat(3_000)).done;
  const reader = chat.turn('two');
  await gate.reached;
  await server.api.send('POST', `${chat.path}/cancel`, {});
  expect(await reader.end()).toMatchObject({ status: 'cancelled' });
  expect(JSON.stringify(await reader.done)).not.toContain('The begin');
  gate.release();
});
