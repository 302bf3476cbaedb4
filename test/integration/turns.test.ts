import { afterAll, beforeAll, expect, inject, onTestFinished, test, vi } from 'vitest';
import { Agents } from '../../src/catalog/agents.ts';
import { TurnLogReader } from '../../src/engine/turn-log-reader.ts';
import { logContext } from '../../src/telemetry/log-context.ts';
import { folded } from '../support/api-client.ts';
import { say, textOf, use } from '../support/scripted-model.ts';
import { TemporalClient } from '../support/temporal-client.ts';
import { onTestServer, startTestServer, type TestServer } from '../support/test-server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({
    mcp: {
      tools: [
        { name: 'look', annotations: { readOnlyHint: true }, handler: ({ at }) => `you see ${String(at)}` },
        { name: 'write', annotations: { readOnlyHint: false, destructiveHint: false }, handler: () => 'written' },
        {
          name: 'add',
          inputSchema: { type: 'object', properties: { a: { type: 'number' } }, required: ['a'] },
          handler: ({ a }) => String(Number(a) + 1),
        },
        {
          name: 'fail',
          handler: () => ({ isError: true, content: [{ type: 'text', text: 'no such order' }] }),
        },
        {
          name: 'throw',
          handler: () => {
            throw new Error('the tool is broken');
          },
        },
        {
          name: 'draw',
          handler: () => ({
            content: [{ type: 'image', mimeType: 'image/png', data: Buffer.from('png!').toString('base64') }],
          }),
        },
        { name: 'page', handler: () => 'w'.repeat(60_000) },
        { name: 'flood', handler: () => 'A'.repeat(300_000) + 'Z'.repeat(100_000) },
        {
          name: 'icons',
          handler: () => ({
            content: Array.from({ length: 300 }, () => ({
              type: 'image' as const,
              mimeType: 'image/png',
              data: Buffer.alloc(600, 1).toString('base64'),
            })),
          }),
        },
      ],
    },
  });
});
afterAll(() => server.stop());

test('the golden stream: base, deltas, a last delta; tools; the end', async () => {
  // The model writes when the reader has the previous text: deltas that wait for that are sent as one.
  const [created, answered] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const chat = await server.chat({
    scripts: [
      (call) => created.promise.then(() => use({ name: 'look', args: { at: 'the sea' } })(call)),
      (call) => answered.promise.then(() => say('All is well.')(call)),
    ],
    spec: onTestServer,
  });
  const reader = chat.turn('look around');
  await reader.type('turn.created');
  created.resolve();
  await reader.type('tool.response');
  answered.resolve();
  const frames = await reader.done;
  expect(frames.map(({ type, sequence_number: n }) => [n, type])).toEqual([
    [1_000_000, 'turn.created'],
    [1_000_001, 'mcp.initialize'],
    [1_000_002, 'model.message'],
    [1_000_003, 'model.message.delta'],
    [1_000_004, 'model.message.delta'],
    [3_000_000, 'model.message.delta'],
    [4_000_000, 'tool.response'],
    [4_000_001, 'model.message'],
    [4_000_002, 'model.message.delta'],
    [4_000_003, 'model.message.delta'],
    [4_000_004, 'model.message.delta'],
    [5_000_000, 'model.message.delta'],
    [6_000_000, 'turn.done'],
  ]);
  expect(await reader.end()).toMatchObject({
    status: 'done',
    output: { content: 'All is well.', finish_reason: 'stop' },
    required_actions: [],
    metrics: { total_input_tokens: 20, total_output_tokens: 10, total_tokens: 30 },
  });
  // The stream folds to the records in the lists.
  const turnId = await reader.turnId();
  const listed = await server.api.list<object>(`${chat.path}/turns/${turnId}/events`);
  expect(folded(frames).slice(1, -1)).toEqual(listed);
  const session = await server.api.list<{ turn_id: string; event: object }>(`${chat.path}/events`);
  expect(session.map(({ event }) => event).reverse()).toEqual(folded(frames));
  // The model got the tool's result after its call.
  expect(chat.requests()[1]?.messages.map(({ role, content }) => [role, content])).toEqual([
    ['user', 'look around'],
    ['assistant', null],
    ['tool', 'you see the sea'],
  ]);
});

test('a turn continues the conversation; the session gets its title from the first one', async () => {
  const chat = await server.chat({ scripts: [say('I am well.'), say('Sunny.')] });
  const first = chat.turn('  How are you today, my dear friend? I have not seen you for years.  ');
  await first.done;
  const second = chat.turn('And the weather?');
  await second.done;
  expect((await second.type('turn.created')).previous_turn_id).toBe(await first.turnId());
  expect(chat.requests()[1]?.messages).toEqual([
    { role: 'user', content: '  How are you today, my dear friend? I have not seen you for years.  ' },
    { role: 'assistant', content: 'I am well.' },
    { role: 'user', content: 'And the weather?' },
  ]);
  const { data: session } = await server.api.get(chat.path);
  expect(session).toMatchObject({ type: 'session', title: 'How are you today, my dear friend? I have not seen' });
  const turns = await server.api.list<{ id: string }>(`${chat.path}/turns`, 1);
  expect(turns.map(({ id }) => id)).toEqual([await second.turnId(), await first.turnId()]);
});

test("the agent's settings reach the model: instructions, messages, variables, parameters, response format, tools", async () => {
  const chat = await server.chat({
    spec: {
      model: {
        name: '',
        params: { max_tokens: 77, temperature: 0.5, top_p: null, parallel_tool_calls: false, reasoning_effort: 'low' },
      },
      instructions: 'You work for {{company}}. {{unknown}}',
      messages: [{ type: 'user.message', content: 'I am {{name}}.' }],
      variables: { company: 'ACME', name: 'Ann' },
      response_format: {
        type: 'json_schema',
        json_schema: { name: 'answer', schema: { type: 'object' }, strict: true },
      },
      client_tools: [{ name: 'open_door', description: 'Opens it', input_schema: { type: 'object' } }],
    },
  });
  await chat.turn('hello').done;
  const [request] = chat.requests();
  expect(request).toMatchObject({
    max_tokens: 77,
    temperature: 0.5,
    parallel_tool_calls: false,
    reasoning_effort: 'low',
    stream: true,
    stream_options: { include_usage: true },
    response_format: { type: 'json_schema', json_schema: { name: 'answer', schema: { type: 'object' }, strict: true } },
  });
  expect(request).not.toHaveProperty('top_p');
  expect(request?.messages).toEqual([
    { role: 'system', content: 'You work for ACME. {{unknown}}' },
    { role: 'user', content: 'I am Ann.' },
    { role: 'user', content: 'hello' },
  ]);
  expect(request?.tools?.map(({ function: { name } }) => name)).toEqual([
    'ask_user_question',
    'create_sub_agent',
    'open_door',
  ]);
});

test('a model name with the prefix of a provider goes to that provider, any other name to the default', async () => {
  server.model.script('org/model', say('from the default provider'));
  for (const name of ['org/model', 'openai/org/model']) {
    await server.api.putAgent('prefixed', { model: { name } });
    await server.api.turn(await server.api.createSession('prefixed'), 'hi').done;
  }
  expect(server.model.requestsTo('org/model').length).toBe(2);
});

test('calls that cannot be executed are returned to the model as errors, and the turn continues', async () => {
  const chat = await server.chat({
    scripts: [
      use(
        { name: 'nowhere' },
        { name: 'add', args: '{"a": "one"}' },
        { name: 'add', args: '{"a": 1', id: 'call_broken' },
        { name: 'fail' },
        { name: 'throw' },
        { name: 'add', args: { a: 41 }, id: 'call_good' },
      ),
      say('I see.'),
    ],
    spec: onTestServer,
  });
  const reader = chat.turn('do it all');
  const frames = await reader.done;
  const results = new Map(
    frames.flatMap((frame) => (frame.type === 'tool.response' ? [[frame.tool_call_id, frame] as const] : [])),
  );
  expect(results.get('call_nowhere_0')).toMatchObject({
    outcome: 'failed',
    content: expect.stringMatching(/no tool named nowhere.*look/),
  });
  // Its server decides whether arguments fit, and this one adds anything.
  expect(results.get('call_add_1')).toMatchObject({ outcome: 'succeeded', content: 'NaN' });
  expect(results.get('call_broken')).toMatchObject({ outcome: 'failed', content: expect.stringMatching(/JSON/) });
  expect(results.get('call_fail_3')).toMatchObject({ outcome: 'failed', content: 'no such order' });
  expect(results.get('call_throw_4')).toMatchObject({
    outcome: 'failed',
    content: expect.stringMatching(/broken|error/i),
  });
  expect(results.get('call_good')).toMatchObject({ outcome: 'succeeded', content: '42' });
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'I see.' } });
  // A strict provider gets valid JSON, and the results in the order of the calls.
  const sent = chat.requests()[1]?.messages ?? [];
  const calls = sent.find(({ role }) => role === 'assistant')?.tool_calls ?? [];
  for (const call of calls) JSON.parse(call.function.arguments);
  expect(sent.filter(({ role }) => role === 'tool').map(({ tool_call_id: id }) => id)).toEqual(
    calls.map(({ id }) => id),
  );
});

test('a call id that the model repeats is replaced: every call has its own id', async () => {
  const again = { name: 'look', args: { at: 'x' }, id: 'call_0' };
  const chat = await server.chat({ scripts: [use(again, again), use(again), say('done')], spec: onTestServer });
  const frames = await chat.turn('look thrice').done;
  const ids = frames.flatMap((frame) => (frame.type === 'tool.response' ? [frame.tool_call_id] : []));
  expect(ids.length).toBe(3);
  expect(new Set(ids).size).toBe(3);
});

test('sixty tool calls of one message all run and are all answered', async () => {
  const calls = Array.from({ length: 60 }, (_, i) => ({ name: 'look', args: { at: i } }));
  const chat = await server.chat({ scripts: [use(...calls), say('done')], spec: onTestServer });
  const reader = chat.turn('look everywhere');
  const frames = await reader.done;
  expect(frames.filter(({ type }) => type === 'tool.response').length).toBe(60);
  expect(chat.requests()[1]?.messages.filter(({ role }) => role === 'tool').length).toBe(60);
});

test('an image is a file of the result, and the model gets it', async () => {
  const chat = await server.chat({ scripts: [use({ name: 'draw' }), say('nice')], spec: onTestServer });
  const reader = chat.turn('draw');
  expect((await reader.type('tool.response')).content).toContain('image/png');
  await reader.done;
  expect(JSON.stringify(chat.requests()[1]?.messages.at(-1))).toContain(
    `data:image/png;base64,${Buffer.from('png!').toString('base64')}`,
  );
});

test('a large result is shortened on the wire and for the model, and is complete at its URL', async () => {
  const chat = await server.chat({ scripts: [use({ name: 'flood' }), say('wow')], spec: onTestServer });
  const reader = chat.turn('flood me');
  const { content } = await reader.type('tool.response');
  await reader.done;
  expect(content.length).toBeLessThanOrEqual(256 * 1024);
  const [, head = '', tail = '', url] =
    /^(A+)\n\[\d+ characters left out; result\.txt has the whole result\]\n(Z+)\n\[result\.txt: GET (\S+)\]$/.exec(
      content,
    ) ?? [];
  expect([head.length > 150_000, tail.length > 50_000]).toEqual([true, true]);
  const whole = await fetch(server.api.url + url);
  expect((await whole.text()) === 'A'.repeat(300_000) + 'Z'.repeat(100_000)).toBe(true);
  expect(whole.headers.get('content-security-policy')).toContain('sandbox');
  const seen = textOf(chat.requests()[1]?.messages.at(-1));
  expect(seen.length).toBeLessThan(70_000);
  expect(/^A{40000}.*left out.*Z{10000}$/s.test(seen)).toBe(true);
});

test('input tokens are divided among the parts of the request, on the stream and in lists', async () => {
  const instructions = 'i'.repeat(1_000);
  const usage = { prompt_tokens: 1_001, completion_tokens: 5, total_tokens: 1_006 };
  const chat = await server.chat({
    scripts: [(call) => call.text('hello').finish('stop', usage)],
    spec: { ...onTestServer, instructions },
  });
  const reader = chat.turn('m'.repeat(3_000));
  const frames = await reader.done;
  const ends = frames.flatMap((frame) => (frame.type === 'model.message.delta' && frame.usage ? [frame.usage] : []));
  expect(ends).toEqual([expect.objectContaining({ input_tokens: 1_001 })]);
  const [{ input_tokens_breakdown: parts }] = ends as [(typeof ends)[0]];
  expect(Object.values(parts).reduce((total, part) => total + part)).toBe(1_001);
  expect(parts).toMatchObject({ harness: 0, skills: 0 });
  expect(parts.tool_definitions).toBeGreaterThan(0);
  expect(parts.messages / parts.instructions).toBeCloseTo(3, 1);
  expect(await reader.end()).toMatchObject({ output: { usage: ends[0] } });
  const listed = await server.api.list<object>(`${chat.path}/turns/${await reader.turnId()}/events`);
  expect(listed.at(-1)).toMatchObject({ usage: ends[0] });
});

test('a result of an activity takes at most 16 KiB of the history; the rest is in the blob store', async () => {
  const scripts = [use({ name: 'page' }, { name: 'page' }), say('p'.repeat(50_000)), say('short')];
  const chat = await server.chat({ scripts, spec: onTestServer });
  const reader = chat.turn('a page');
  const address = { address: inject('temporalAddress'), namespace: inject('temporalNamespace') };
  const temporal = await TemporalClient.connect(address);
  onTestFinished(() => temporal.close());
  await reader.done;
  const { events } = await temporal.client.workflow.getHandle(`turn/${await reader.turnId()}`).fetchHistory();
  const results = (events ?? []).flatMap((event) => event.activityTaskCompletedEventAttributes?.result?.payloads ?? []);
  expect(results.length).toBeGreaterThanOrEqual(4);
  for (const { data } of results) expect(data?.length).toBeLessThanOrEqual(16 * 1024 + 512);
  // The model and the next turn get the whole text.
  expect(chat.requests()[1]?.messages.at(-1)?.content).toBe('w'.repeat(60_000));
  await chat.turn('and?').done;
  expect(chat.requests()[2]?.messages.some(({ content }) => content === 'p'.repeat(50_000))).toBe(true);
});

test('a message of 1 MB streams in deltas that fit, and folds to itself', async () => {
  const chat = await server.chat({
    scripts: [
      (call) => {
        call.text('x'.repeat(1_000_000)).text('y');
        call.finish();
      },
    ],
  });
  const reader = chat.turn('write much');
  const frames = await reader.done;
  const message = folded(frames).find((event) => 'content' in event) as { content: string };
  expect(message.content).toBe(`${'x'.repeat(1_000_000)}y`);
  const replay = await server.api.subscribe(chat.sessionId, await reader.turnId()).done;
  expect(folded(replay)).toEqual(folded(frames));
  const [listed] = await server.api.list<{ content: string }>(`${chat.path}/turns/${await reader.turnId()}/events`);
  expect(listed?.content).toBe(message.content);
});

test('the limits of iterations and of output tokens end the turn with a clear error', async () => {
  const limited = await server.chat({
    scripts: Array.from({ length: 3 }, () => use({ name: 'look', args: { at: 1 } })),
    spec: { ...onTestServer, config: { iteration_limit: 2 } },
  });
  const reader = limited.turn('forever');
  expect(await reader.end()).toMatchObject({
    status: 'error',
    message: expect.stringMatching(/limit of 2 model calls/),
  });
  expect(limited.requests().length).toBe(2);

  const long = await server.chat({
    scripts: [(call) => void call.text('and so on').toolCall('look', '{"at"').finish('length')],
  });
  const cut = long.turn('talk');
  expect(await cut.end()).toMatchObject({ status: 'error', message: expect.stringMatching(/length/) });
  const [, message] = folded(await cut.done);
  expect(message).toMatchObject({ content: 'and so on', tool_calls: [], finish_reason: 'length' });
});

test('a turn ends after the rounds that its request allows, without an error, and the next one continues', async () => {
  const look = () => use({ name: 'look', args: { at: 1 } });
  const chat = await server.chat({ scripts: [look(), look(), say('Seen.')], spec: onTestServer });
  const limited = chat.turn('look', { max_turns: 2 }, { 'idempotency-key': 'k1' });
  expect(await limited.end()).toMatchObject({ status: 'done', ended_by: 'max_turns', required_actions: [] });
  const results = (await limited.done).filter(({ type }) => type === 'tool.response');
  expect(results.map((event) => 'content' in event && event.content)).toEqual(['you see 1', 'you see 1']);
  expect(chat.requests()).toHaveLength(2);
  const answered = await chat.turn('go on', { max_turns: 1 }).end();
  expect(answered).toMatchObject({ status: 'done', output: { content: 'Seen.' } });
  expect(answered).not.toHaveProperty('ended_by');
  expect(
    chat
      .requests()
      .at(-1)
      ?.messages.map(({ role }) => role),
  ).toEqual(['user', 'assistant', 'tool', 'assistant', 'tool', 'user']);
  const repeated = { input: [{ type: 'user.message', content: 'look' }], max_turns: 3 };
  const reused = await server.api.send('POST', `${chat.path}/turns`, repeated, { 'idempotency-key': 'k1' });
  expect([reused.status, reused.body.error.code]).toEqual([422, 'idempotency_key_reused']);
  for (const bad of [0, 10_001, 1.5, '2']) {
    const { status, body } = await server.api.send('POST', `${chat.path}/turns`, { ...repeated, max_turns: bad });
    expect([status, body.error.param]).toEqual([400, 'max_turns']);
  }
});

test('reasoning and refusals are streamed, stored, and distinguished from the text', async () => {
  const chat = await server.chat({
    scripts: [
      (call) => {
        call
          .delta({ reasoning_content: 'Let me ' })
          .delta({ reasoning_content: 'think.' })
          .text('No')
          .delta({ refusal: 'I will not.' });
        call.finish();
      },
    ],
  });
  const frames = await chat.turn('do harm').done;
  expect(folded(frames)[1]).toMatchObject({
    reasoning_content: 'Let me think.',
    content: 'No',
    refusal: 'I will not.',
  });
});

test('an unavailable MCP server does not end the turn: the model is told', async () => {
  const chat = await server.chat({
    spec: { instructions: 'Be brief.', mcp_servers: [{ type: 'inline', name: 'gone', url: 'http://127.0.0.1:9/mcp' }] },
  });
  const reader = chat.turn('hello');
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'ok' } });
  expect(chat.requests()[0]?.messages[0]?.content).toMatch(
    /^Be brief\.\n\nThe tools of the MCP server "gone" are currently unavailable\. .*\n> it failed: bad port$/,
  );
  const unavailable = [{ name: 'gone', reason: 'it failed: bad port' }];
  expect(await reader.type('mcp.initialize')).toMatchObject({ mcp_servers: [], unavailable });
});

test('a turn that answers calls says which MCP servers are unavailable, also if no other is left', async () => {
  const ask = use({ name: 'ask_user_question', args: { question: '?' }, id: 'q1' });
  const chat = await server.chat({
    spec: { mcp_servers: [{ type: 'inline', name: 'gone', url: 'http://127.0.0.1:9/mcp' }] },
    scripts: [ask],
  });
  expect(await chat.turn('hello').end()).toMatchObject({ status: 'done', output: null });
  const reader = chat.turn([{ type: 'user.tool_response', thread_id: 'main', tool_call_id: 'q1', content: 'yes' }]);
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'ok' } });
  const unavailable = [{ name: 'gone', reason: 'it failed: bad port' }];
  expect(await reader.type('mcp.initialize')).toMatchObject({ mcp_servers: [], unavailable });
});

test('tools that no attempt can prepare do not end a turn that answers calls, and are not retried without end', async () => {
  const ask = use({ name: 'ask_user_question', args: { question: '?' }, id: 'q1' });
  const chat = await server.chat({ spec: onTestServer, scripts: [ask] });
  expect(await chat.turn('hello').end()).toMatchObject({ status: 'done', output: null });
  // oxlint-disable-next-line typescript/unbound-method -- called on what the spy is called on
  const { spec } = Agents.prototype;
  const damaged = vi.fn(() => Promise.reject(new Error('the catalog has no such agent spec')));
  const spy = vi.spyOn(Agents.prototype, 'spec').mockImplementation(function (this: Agents, hash) {
    return logContext().activityType === 'connectTools' ? damaged() : spec.call(this, hash);
  });
  onTestFinished(() => spy.mockRestore());
  const reply = { type: 'user.tool_response', thread_id: 'main', tool_call_id: 'q1', content: 'yes' };
  expect(await chat.turn([reply]).end()).toMatchObject({ status: 'done', output: { content: 'ok' } });
  expect(damaged).toHaveBeenCalledTimes(1);
});

test('files reach the model; large ones are returned as URLs', async () => {
  const chat = await server.chat();
  const image = Buffer.from('\x89PNG\r\n\x1a\nsmall', 'latin1').toString('base64');
  const large = Buffer.alloc(100_000, 7);
  const reader = chat.turn([
    {
      type: 'user.message',
      content: [
        { type: 'text', text: 'see' },
        { type: 'file', name: 'a.png', data: `data:image/png;base64,${image}` },
        {
          type: 'file_upload',
          file: { filename: 'b.pdf', file_data: `data:application/pdf;base64,${large.toString('base64')}` },
        },
        {
          type: 'file',
          name: 'c.txt',
          data: `data:text/plain;charset=utf-8;base64,${Buffer.from('words').toString('base64')}`,
        },
      ],
    },
  ]);
  const { input } = await reader.type('turn.created');
  const [item] = input;
  if (item?.type !== 'user.message' || typeof item.content === 'string') throw new Error('no parts');
  const [, small, big] = item.content;
  expect(small).toEqual({ type: 'file', name: 'a.png', data: `data:image/png;base64,${image}` });
  expect(big).toMatchObject({
    type: 'file',
    name: 'b.pdf',
    data: expect.stringMatching(/^\/v1\/agents\/sessions\/.*files/),
  });
  const bytes = await fetch(server.api.url + (big?.type === 'file' ? big.data : ''));
  expect(bytes.headers.get('content-type')).toBe('application/pdf');
  expect(Buffer.from(await bytes.arrayBuffer()).equals(large)).toBe(true);
  await reader.done;
  expect(chat.requests()[0]?.messages[0]?.content).toEqual([
    { type: 'text', text: 'see' },
    { type: 'image_url', image_url: { url: `data:image/png;base64,${image}` } },
    {
      type: 'text',
      text: expect.stringMatching(/^File b\.pdf \(application\/pdf, 98 KB\): it cannot be read: /),
    },
    { type: 'text', text: 'File c.txt (text/plain, 5 B):\nwords' },
  ]);
});

test('all kinds of text survive: NUL, lone surrogates, 300 parts', async () => {
  const odd = 'a\u0000b\ud800c😀';
  const chat = await server.chat({ scripts: [(call) => void call.text('got\u0000it').finish()] });
  const parts = Array.from({ length: 300 }, (_, i) => ({ type: 'text', text: `${i} ${odd} ${'x'.repeat(3_000)}` }));
  const reader = chat.turn([{ type: 'user.message', content: parts }]);
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'got\u0000it' } });
  const sent = chat.requests()[0]?.messages[0]?.content as { text: string }[];
  expect(sent.length).toBe(300);
  expect(sent[299]?.text.startsWith('299 a\u0000b')).toBe(true);
  expect(sent[299]?.text.length).toBe(parts[299]?.text.length);
});

test('texts that are too large for a workflow reach the model whole, and appear nowhere else', async () => {
  const long = `Once upon a time ${'x'.repeat(150_000)}`;
  for (const content of [
    long,
    [
      { type: 'text', text: ' ' },
      { type: 'text', text: long },
    ],
  ]) {
    const chat = await server.chat({
      scripts: [use({ name: 'open_door', id: 'd1' }), say('fine')],
      spec: { client_tools: [{ name: 'open_door', input_schema: { type: 'object' } }] },
    });
    const first = chat.turn([{ type: 'user.message', content }]);
    expect((await first.end()).status).toBe('done');
    expect(JSON.stringify(chat.requests()[0]?.messages[0]?.content)).toContain(long);
    const answer = [{ type: 'user.tool_response', thread_id: 'main', tool_call_id: 'd1', content: long }];
    expect(await chat.turn(answer).end()).toMatchObject({ status: 'done', output: { content: 'fine' } });
    const told = chat.requests()[1]?.messages.find(({ role }) => role === 'tool');
    expect(told?.content).toMatch(/^Once upon a time x{40000}/);
    expect((await server.api.get(chat.path)).data.title).toBe(`Once upon a time ${'x'.repeat(33)}`);
    expect((await server.api.list(`${chat.path}/turns`, 25)).length).toBe(2);
    expect((await server.api.list(`${chat.path}/events`)).length).toBe(7);
  }
});

test('only the first turn sets the title', async () => {
  const chat = await server.chat();
  const data = `data:image/png;base64,${Buffer.from('x').toString('base64')}`;
  await chat.turn([{ type: 'user.message', content: [{ type: 'file', name: 'a.png', data }] }]).done;
  await chat.turn('words at last').done;
  expect((await server.api.get(chat.path)).data.title).toBe(null);
});

test('many small files do not make an event too long: those that do not fit are URLs', async () => {
  const chat = await server.chat();
  const data = `data:application/x;base64,${Buffer.alloc(60_000, 5).toString('base64')}`;
  const content = Array.from({ length: 30 }, (_, i) => ({ type: 'file', name: `${i}.bin`, data }));
  const reader = chat.turn([{ type: 'user.message', content }]);
  const [item] = (await reader.type('turn.created')).input; // the reader checks the length of the line
  if (item?.type !== 'user.message' || typeof item.content === 'string') throw new Error('no parts');
  const shown = item.content.map((part) => (part.type === 'file' ? part.data : ''));
  expect(shown.slice(0, 4)).toEqual([data, data, data, data]);
  expect(shown.slice(4).every((one) => one.startsWith('/v1/agents/sessions/'))).toBe(true);
  expect((await reader.end()).status).toBe('done');
});

test('a result of hundreds of files keeps its text and the first of them, and the tool runs once', async () => {
  const chat = await server.chat({ scripts: [use({ name: 'icons' }), say('many')], spec: onTestServer });
  const before = server.mcp.calls.length;
  const reader = chat.turn('draw icons');
  expect((await reader.type('tool.response')).content).toMatch(/\[200 more files of this result were left out\]$/);
  expect((await reader.end()).status).toBe('done');
  expect(server.mcp.calls.length - before).toBe(1);
  expect(chat.requests()[1]?.messages.at(-1)?.content).toHaveLength(101);
});

test("a flood of results is sent at the reader's pace", async () => {
  const calls = Array.from({ length: 60 }, () => ({ name: 'flood' }));
  const chat = await server.chat({ scripts: [use(...calls), say('enough')], spec: onTestServer });
  const reader = chat.turn('flood me');
  const frames = await reader.done;
  expect(frames.filter(({ type }) => type === 'tool.response').length).toBe(60);
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'enough' } });
});

test('Temporal is not queried for the turn that starts a session', async () => {
  const start = vi.spyOn(TurnLogReader.prototype, 'start');
  onTestFinished(() => start.mockRestore());
  const chat = await server.chat();
  const turn = chat.turn('hi');
  await turn.done;
  const turnId = await turn.turnId();
  const asked = start.mock.settledResults.filter((_, i) => start.mock.calls[i]?.[0] === turnId);
  expect(asked.filter(({ type }) => type === 'rejected')).toEqual([]);
});
