import { afterAll, beforeAll, expect, test } from 'vitest';
import { folded } from '../support/api-client.ts';
import { eventually } from '../support/eventually.ts';
import { say, use } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({
    mcp: {
      tools: [
        { name: 'look', annotations: { readOnlyHint: true }, handler: () => 'seen' },
        {
          name: 'write',
          annotations: { readOnlyHint: false, destructiveHint: false },
          inputSchema: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
          handler: ({ text }) => `wrote ${String(text)}`,
        },
        { name: 'erase', annotations: { destructiveHint: true }, handler: () => 'erased' },
        { name: 'plain', handler: () => 'done' },
      ],
    },
  });
});
afterAll(() => server.stop());

const allow = (id: string, thread = 'main') => ({
  type: 'user.tool_approval',
  thread_id: thread,
  tool_call_id: id,
  approval: { status: 'allow' },
});
const edit = (id: string, args: object) => ({ ...allow(id), approval: { status: 'allow', arguments: args } });
const deny = (id: string, reason?: string) => ({
  ...allow(id),
  approval: { status: 'deny', ...(reason && { reason }) },
});
const respond = (id: string, content: string) => ({
  type: 'user.tool_response',
  thread_id: 'main',
  tool_call_id: id,
  content,
});

async function pausedOn(chat: Chat, text = 'go'): Promise<string> {
  const reader = chat.turn(text);
  expect(await reader.end()).toMatchObject({ status: 'done', output: null });
  return reader.turnId();
}

test('a turn that needs approval ends with the request; an allowed call runs, a denied one is reported to the model', async () => {
  const chat = await server.chat({
    scripts: [
      use(
        { name: 'write', args: { text: 'a' }, id: 'w1' },
        { name: 'look', id: 'l1' },
        { name: 'erase', id: 'e1' },
        { name: 'plain', id: 'p1' },
      ),
      say('Very well.'),
    ],
    spec: onTestServer,
  });
  const first = chat.turn('go');
  const frames = await first.done;
  // Calls that need no approval run before the turn pauses.
  expect(frames.flatMap((f) => (f.type === 'tool.response' ? [f.tool_call_id] : [])).toSorted()).toEqual(['l1', 'p1']);
  const required = await first.type('tool.approval_required');
  const message = frames.find(({ type }) => type === 'model.message');
  expect(required.tool_calls).toEqual([
    { id: 'w1', source_event_id: message?.id, event_id: message?.id },
    { id: 'e1', source_event_id: message?.id, event_id: message?.id },
  ]);
  const { sequence_number: _, ...event } = required;
  expect(await first.end()).toMatchObject({ status: 'done', output: null, required_actions: [event] });
  const before = server.mcp.calls.length;

  const second = chat.turn([deny('e1', 'too dangerous'), allow('w1')]);
  const resumed = await second.done;
  expect(resumed.flatMap((f) => (f.type === 'tool.response' ? [[f.tool_call_id, f.outcome, f.content]] : []))).toEqual([
    ['e1', 'denied', expect.stringContaining('too dangerous')],
    ['w1', 'succeeded', 'wrote a'],
  ]);
  expect(await second.end()).toMatchObject({ status: 'done', output: { content: 'Very well.' } });
  const ran = server.mcp.calls.slice(before);
  expect(ran.map(({ tool, arguments: args }) => [tool, args])).toEqual([['write', { text: 'a' }]]);
  // The operation id reaches the tool in both ways, and names the turn in which the model made the call.
  const operation = `${await first.turnId()}/w1`;
  expect(ran[0]?.meta['io.everturn/operation-id']).toBe(operation);
  expect(ran[0]?.headers['idempotency-key']).toBe(operation);
  // Each call is answered once, after its message, in the order of the calls.
  const sent = chat.requests()[1]?.messages ?? [];
  expect(sent.map(({ role, tool_call_id: id, content }) => [role, id, content])).toEqual([
    ['user', undefined, 'go'],
    ['assistant', undefined, null],
    ['tool', 'w1', 'wrote a'],
    ['tool', 'l1', 'seen'],
    ['tool', 'e1', expect.stringContaining('too dangerous')],
    ['tool', 'p1', 'done'],
  ]);
});

test('the agent decides which tools need approval', async () => {
  const server1 = { type: 'truefoundry-mcp-registry' as const, name: 'test' };
  const cases = [
    [['@all'], ['look', 'write', 'erase', 'plain']],
    [
      ['@destructive', 'plain'],
      ['erase', 'plain'],
    ],
    [['@unannotated'], ['plain']],
    [[], []],
    [undefined, ['write', 'erase', 'plain']],
  ] as const;
  for (const [selectors, expected] of cases) {
    const chat = await server.chat({
      scripts: [use(...['look', 'write', 'erase', 'plain'].map((name) => ({ name, args: { text: 't' }, id: name })))],
      spec: { mcp_servers: [{ ...server1, ...(selectors && { require_approval_for_tools: [...selectors] }) }] },
    });
    const end = await chat.turn('go').end();
    if (end.status !== 'done') throw new Error(end.status);
    expect(end.required_actions.flatMap(({ tool_calls: calls }) => calls.map(({ id }) => id))).toEqual(expected);
  }
});

test('tools of an inline server that run unasked are named in the warnings of the agent, and of the server', async () => {
  const inline = { type: 'inline' as const, name: 'own', url: server.mcp.url };
  const chat = await server.chat({ scripts: [say('Hi.')], spec: { mcp_servers: [inline] } });
  const named = expect.stringMatching(/tools without annotations run without an approval: plain; /);
  // A busy machine may take longer than an answer waits for the server.
  await eventually(async () => {
    const spec = { model: { name: chat.agent }, mcp_servers: [inline] };
    const { body } = await server.api.send('PUT', `/v1/agents/${chat.agent}`, spec);
    expect(body).toMatchObject({ data: { spec, warnings: [named] } });
  });
  // It repeats the response of the server from then.
  const { body } = await server.api.send('GET', `/v1/agents/${chat.agent}`);
  expect(body).toMatchObject({ data: { warnings: [named] } });
  expect(await chat.turn('hi').type('mcp.initialize')).toMatchObject({ mcp_servers: [{ warnings: [named] }] });
});

test('questions and client tools are answered by the client', async () => {
  const chat = await server.chat({
    scripts: [
      use(
        { name: 'ask_user_question', args: { question: 'Where?', options: ['here', 'there'] }, id: 'q1' },
        { name: 'open_door', args: { door: 2 }, id: 'd1' },
        { name: 'write', args: { text: 'b' }, id: 'w1' },
      ),
      say('Thanks.'),
    ],
    spec: {
      ...onTestServer,
      client_tools: [
        {
          name: 'open_door',
          input_schema: { type: 'object', properties: { door: { type: 'integer' } }, required: ['door'] },
        },
      ],
    },
  });
  const first = chat.turn('go');
  const end = await first.end();
  if (end.status !== 'done') throw new Error(end.status);
  expect(end.required_actions.map(({ type, tool_calls: calls }) => [type, calls.map(({ id }) => id)])).toEqual([
    ['tool.approval_required', ['w1']],
    ['tool.response_required', ['q1', 'd1']],
  ]);
  expect(folded(await first.done)).toContainEqual(
    expect.objectContaining({
      type: 'model.message',
      tool_calls: expect.arrayContaining([
        expect.objectContaining({ tool_info: { type: 'truefoundry-system', name: 'ask_user_question' } }),
      ]),
    }),
  );
  const second = chat.turn([respond('d1', 'door 2 is open'), allow('w1'), respond('q1', 'there')]);
  expect(await second.end()).toMatchObject({ status: 'done', output: { content: 'Thanks.' } });
  expect(
    chat
      .requests()[1]
      ?.messages.slice(2)
      .map(({ tool_call_id: id, content }) => [id, content]),
  ).toEqual([
    ['q1', 'there'],
    ['d1', 'door 2 is open'],
    ['w1', 'wrote b'],
  ]);
  // The client's answer is part of the input, not an event of the server.
  const responses = (await second.done).filter(({ type }) => type === 'tool.response');
  expect(responses.map((frame) => frame.type === 'tool.response' && frame.tool_call_id)).toEqual(['w1']);
});

test('answers must be complete, of the right kind, for pending calls and given once; otherwise nothing changes', async () => {
  const chat = await server.chat({
    scripts: [
      use(
        { name: 'write', args: { text: 'c' }, id: 'w1' },
        { name: 'ask_user_question', args: { question: '?' }, id: 'q1' },
      ),
    ],
    spec: onTestServer,
  });
  const paused = await pausedOn(chat);
  const ran = server.mcp.calls.length;
  const attempts: [unknown, number, string, RegExp][] = [
    ['hello', 422, 'actions_pending', /w1, q1/],
    [[], 422, 'actions_pending', /w1, q1/],
    [[allow('w1')], 422, 'calls_unanswered', /q1/],
    [[allow('nope'), respond('q1', 'a')], 422, 'call_not_pending', /nope/],
    [[allow('w1', 'other'), respond('q1', 'a')], 422, 'call_not_pending', /other/],
    [[allow('w1'), deny('w1'), respond('q1', 'a')], 422, 'call_answered_twice', /w1/],
    [[respond('w1', 'x'), respond('q1', 'a')], 422, 'call_not_pending', /waits for a user.tool_approval/],
    [[allow('q1'), allow('w1')], 422, 'call_not_pending', /waits for a user.tool_response/],
    [[allow('w1'), respond('q1', '')], 400, 'invalid_request', /content/],
    [[{ type: 'user.message', content: 'x' }, allow('w1')], 400, 'mixed_input', /either/],
  ];
  for (const [input, status, code, message] of attempts) {
    const body = { input: typeof input === 'string' ? [{ type: 'user.message', content: input }] : input };
    const answer = await server.api.send('POST', `${chat.path}/turns`, body);
    expect([answer.status, answer.body.error.code], JSON.stringify(answer.body)).toEqual([status, code]);
    expect(answer.body.error.message).toMatch(message);
  }
  const turns = await server.api.list<{ id: string }>(`${chat.path}/turns`, 25);
  expect(turns.map(({ id }) => id)).toEqual([paused]);
  expect(server.mcp.calls.length).toBe(ran);
  // After all of these, the right answer is still accepted, once.
  const right = [allow('w1'), respond('q1', 'a')];
  expect(await chat.turn(right).end()).toMatchObject({ status: 'done', output: { content: 'ok' } });
  const again = await server.api.send('POST', `${chat.path}/turns`, { input: right });
  expect([again.status, again.body.error.code]).toEqual([422, 'call_not_pending']);
});

test('a call runs with the arguments that its approval has edited, and the model is told so', async () => {
  const chat = await server.chat({
    scripts: [
      use({ name: 'write', args: { text: 'a' }, id: 'w1' }, { name: 'write', args: { text: 'b' }, id: 'w2' }),
      say('Very well.'),
    ],
    spec: onTestServer,
  });
  const paused = await pausedOn(chat);
  const before = server.mcp.calls.length;
  const long = 'x'.repeat(2_000);
  const rejected: [object, number, string, string][] = [
    [{ text: 7 }, 422, 'invalid_arguments', 'input.1.approval.arguments/text'],
    [{}, 422, 'invalid_arguments', 'input.1.approval.arguments/text'],
    [{ text: 'x'.repeat(64 * 1024) }, 400, 'invalid_request', 'input.1.approval.arguments'],
  ];
  for (const [args, status, code, param] of rejected) {
    const body = { input: [edit('w1', { text: 'c' }), edit('w2', args)] };
    const answer = await server.api.send('POST', `${chat.path}/turns`, body);
    expect([answer.status, answer.body.error.code, answer.body.error.param]).toEqual([status, code, param]);
  }
  expect(server.mcp.calls.length).toBe(before);

  const reader = chat.turn([edit('w1', { text: long }), edit('w2', { text: 'b' })]);
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Very well.' } });
  expect((await reader.type('turn.created')).input).toMatchObject([
    { approval: { status: 'allow', arguments: { text: long } } },
    { approval: { status: 'allow' } },
  ]);
  const ran = server.mcp.calls.slice(before);
  const operations = ran.map(({ arguments: args, meta }) => [meta['io.everturn/operation-id'], args]);
  expect(new Map(operations as [string, object][])).toEqual(
    new Map([
      [`${paused}/w1`, { text: long }],
      [`${paused}/w2`, { text: 'b' }],
    ]),
  );
  const responses = (await reader.done).flatMap((one) => (one.type === 'tool.response' ? [one] : []));
  const executed = Object.fromEntries(responses.map((one) => [one.tool_call_id, one.arguments]));
  // An edit that changes nothing is none.
  expect(executed).toEqual({ w1: { text: long }, w2: undefined });
  const sent = chat.requests()[1]?.messages ?? [];
  expect(sent[1]).toMatchObject({ tool_calls: [{ function: { arguments: '{"text":"a"}' } }, {}] });
  expect(sent[2]?.content).toBe(
    `The user changed the arguments of this tool call. It ran with: {"text":"${long}"}\n\nwrote ${long}`,
  );
  expect(sent[3]?.content).toBe('wrote b');
});

test('an empty input continues the conversation if no call is pending', async () => {
  const chat = await server.chat({ scripts: [say('one'), say('two')] });
  await chat.turn('start').done;
  for (const input of [[], null, undefined]) {
    const reader = server.api.stream(`${chat.path}/turns`, { input });
    expect((await reader.end()).status).toBe('done');
  }
  expect(chat.requests().length).toBe(4);
});

test('the reasons of denials reach model and reader unshortened, whatever their total length', async () => {
  const ids = Array.from({ length: 12 }, (_, i) => `w${i}`);
  const chat = await server.chat({
    scripts: [use(...ids.map((id) => ({ name: 'write', args: { text: id }, id }))), say('I see.')],
    spec: onTestServer,
  });
  await pausedOn(chat);
  const reader = chat.turn(ids.map((id) => deny(id, `${id}: ${'no '.repeat(3_300)}`)));
  const frames = await reader.done;
  for (const id of ids) {
    const told = expect.stringMatching(new RegExp(`Reason: ${id}: (no ){3300}$`));
    expect(frames).toContainEqual(expect.objectContaining({ type: 'tool.response', tool_call_id: id, content: told }));
    expect(chat.requests()[1]?.messages).toContainEqual(expect.objectContaining({ tool_call_id: id, content: told }));
  }
  expect((await reader.end()).status).toBe('done');
});
