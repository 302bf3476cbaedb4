import { afterAll, beforeAll, expect, test } from 'vitest';
import { folded } from '../support/api-client.ts';
import { say, use } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

/** Turns of agents with `pause: "wait"`, which wait for answers to their tool calls. */

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({
    mcp: {
      tools: [
        { name: 'look', annotations: { readOnlyHint: true }, handler: () => 'seen' },
        {
          name: 'write',
          annotations: { readOnlyHint: false, destructiveHint: false },
          handler: ({ text }) => `wrote ${String(text)}`,
        },
        { name: 'erase', annotations: { destructiveHint: true }, handler: () => 'erased' },
      ],
    },
  });
});
afterAll(() => server.stop());

const spec = { ...onTestServer, config: { pause: 'wait' as const } };

const allow = (id: string, thread = 'main') => ({
  type: 'user.tool_approval',
  thread_id: thread,
  tool_call_id: id,
  approval: { status: 'allow' },
});
const deny = (id: string, reason: string) => ({ ...allow(id), approval: { status: 'deny', reason } });
const respond = (id: string, content: string) => ({
  type: 'user.tool_response',
  thread_id: 'main',
  tool_call_id: id,
  content,
});

const answer = ({ path }: Chat, ...input: object[]) => server.api.send('POST', `${path}/actions`, { input });

test('a turn waits for answers, which come one by one; each allowed call runs at once', async () => {
  const chat = await server.chat({
    scripts: [
      use(
        { name: 'write', args: { text: 'a' }, id: 'w1' },
        { name: 'look', id: 'l1' },
        { name: 'erase', id: 'e1' },
        { name: 'ask_user_question', args: { question: 'Why?' }, id: 'q1' },
      ),
      say('Very well.'),
    ],
    spec,
  });
  const reader = chat.turn('go');
  await reader.type('turn.paused');
  const turn = `${chat.path}/turns/${await reader.turnId()}`;
  expect((await server.api.get(turn)).data.state).toEqual({
    status: 'running',
    waiting: ['w1', 'e1', 'q1'],
    paused: ['action'],
  });

  expect(await answer(chat, allow('w1'))).toMatchObject({
    status: 200,
    body: { data: { accepted: ['w1'], waiting: ['e1', 'q1'] } },
  });
  await reader.next((one) => one.type === 'tool.response' && one.tool_call_id === 'w1');
  expect(await answer(chat, deny('e1', 'too dangerous'), respond('q1', 'because'))).toMatchObject({
    status: 200,
    body: { data: { accepted: ['e1', 'q1'], waiting: [] } },
  });
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Very well.' }, required_actions: [] });
  expect((await server.api.get(turn)).data.state).toMatchObject({
    status: 'done',
    metrics: { model_calls: 2, tool_calls: 4, waited_ms: expect.toSatisfy((ms: number) => ms > 0) },
  });

  const by = { subject_id: 'local', subject_type: 'user', subject_slug: 'local' };
  const events = (await reader.done).filter(({ type }) => !/^(model|mcp)/.test(type));
  expect(events).toMatchObject([
    { type: 'turn.created' },
    { type: 'tool.approval_required', tool_calls: [{ id: 'w1' }, { id: 'e1' }] },
    { type: 'tool.response_required', tool_calls: [{ id: 'q1' }] },
    { type: 'tool.response', tool_call_id: 'l1' },
    { type: 'turn.paused', reason: 'action' },
    { type: 'tool.decided', tool_call_id: 'w1', decision: 'allow', remaining: 0, by },
    { type: 'turn.resumed', reason: 'action', by },
    { type: 'tool.response', tool_call_id: 'w1', outcome: 'succeeded', content: 'wrote a' },
    { type: 'turn.paused' },
    { type: 'tool.decided', tool_call_id: 'e1', decision: 'deny', reason: 'too dangerous' },
    { type: 'tool.response', tool_call_id: 'e1', outcome: 'denied' },
    { type: 'tool.response', tool_call_id: 'q1', outcome: 'succeeded', content: 'because' },
    { type: 'turn.resumed' },
    { type: 'turn.done' },
  ]);
  const listed = await server.api.list<object>(`${turn}/events`);
  expect(folded(await reader.done).slice(1, -1)).toEqual(listed);
  const sent = chat.requests()[1]?.messages ?? [];
  expect(sent.map(({ role, tool_call_id: id, content }) => [role, id, content])).toEqual([
    ['user', undefined, 'go'],
    ['assistant', undefined, null],
    ['tool', 'w1', 'wrote a'],
    ['tool', 'l1', 'seen'],
    ['tool', 'e1', expect.stringContaining('too dangerous')],
    ['tool', 'q1', 'because'],
  ]);
});

test('a wrong answer changes nothing; a repeated one neither', async () => {
  const chat = await server.chat({
    scripts: [
      use({ name: 'write', args: { text: 'a' }, id: 'w1' }, { name: 'erase', id: 'e1' }),
      use({ name: 'write', args: { text: 'b' }, id: 'w2' }),
      say('Done.'),
    ],
    spec,
  });
  expect(await answer(chat, allow('w1'))).toMatchObject({ status: 409, body: { error: { code: 'nothing_pending' } } });
  const reader = chat.turn('go');
  await reader.type('turn.paused');
  const rejected: [object[], number, string, string?][] = [
    [[allow('nope')], 422, 'call_not_pending', 'input.0'],
    [[allow('w1'), allow('w1', 'other')], 422, 'call_not_pending', 'input.1'],
    [[allow('w1'), allow('e1'), allow('w1')], 422, 'call_answered_twice', 'input.2'],
    [[respond('w1', 'no')], 422, 'call_not_pending', 'input.0'],
    [[], 400, 'invalid_request'],
    [Array.from({ length: 51 }, () => allow('w1')), 400, 'invalid_request'],
    [[{ type: 'user.message', content: 'hello' }], 400, 'invalid_request'],
  ];
  for (const [input, status, code, param] of rejected) {
    const { body, ...rest } = await answer(chat, ...input);
    expect({ status: rest.status, ...body.error }).toMatchObject({ status, code, ...(param && { param }) });
  }
  const elsewhere = await server.api.send('POST', `${chat.path}/turns`, { input: [allow('w1')] });
  expect([elsewhere.status, elsewhere.body.error.code]).toEqual([422, 'call_not_pending']);
  expect(elsewhere.body.error.message).toContain(`POST ${chat.path}/actions answers the calls of a running turn`);
  const denied = deny('e1', 'no');
  for (let i = 0; i < 2; i++) expect((await answer(chat, denied)).body.data.waiting).toEqual(['w1']);
  expect(await answer(chat, allow('e1'))).toMatchObject({ status: 409, body: { error: { code: 'already_decided' } } });
  expect((await answer(chat, allow('w1'))).status).toBe(200);
  await reader.next((one) => one.type === 'tool.approval_required' && one.tool_calls[0]?.id === 'w2');
  // The response to the first answer may have been lost.
  expect((await answer(chat, allow('w1'))).body).toEqual({
    data: { accepted: ['w1'], waiting: ['w2'], repeated: ['w1'] },
  });
  expect((await answer(chat, deny('w1', 'no'))).body.error.code).toBe('call_not_pending');
  expect((await answer(chat, allow('w2'))).status).toBe(200);
  expect(await reader.end()).toMatchObject({ status: 'done' });
  const decided = (await reader.done).flatMap((one) => (one.type === 'tool.decided' ? [one.tool_call_id] : []));
  expect(decided).toEqual(['e1', 'w1', 'w2']);
  expect((await answer(chat, allow('w2'))).body).toEqual({ data: { accepted: ['w2'], waiting: [], repeated: ['w2'] } });
  expect((await answer(chat, deny('w2', 'no'))).body.error.code).toBe('nothing_pending');
});

test('a waiting turn is cancelled by the next message, and its calls end as not executed', async () => {
  const chat = await server.chat({
    scripts: [use({ name: 'write', args: { text: 'a' }, id: 'w1' }), say('Something else.')],
    spec,
  });
  const reader = chat.turn('go');
  await reader.type('turn.paused');
  const next = chat.turn('never mind');
  expect(await next.end()).toMatchObject({ status: 'done', output: { content: 'Something else.' } });
  expect(await reader.end()).toMatchObject({ status: 'cancelled', reason: 'cancelled-for-next-turn' });
  expect(await reader.done).toContainEqual(
    expect.objectContaining({ type: 'tool.response', tool_call_id: 'w1', outcome: 'cancelled' }),
  );
});

test('a turn waits across a restart of the server', async () => {
  const chat = await server.chat({
    scripts: [use({ name: 'write', args: { text: 'a' }, id: 'w1' }), say('Done.')],
    spec,
  });
  const reader = chat.turn('go');
  await reader.type('turn.paused');
  const turnId = await reader.turnId();
  reader.close();
  await server.restart();
  const follower = server.api.subscribe(chat.sessionId, turnId);
  expect((await answer(chat, allow('w1'))).status).toBe(200);
  expect(await follower.end()).toMatchObject({ status: 'done', output: { content: 'Done.' } });
});

test('several sub-agents wait in one turn, and each resumes as soon as it is answered', async () => {
  const chat = await server.chat({ spec });
  const names = ['first', 'second'];
  for (const name of names) {
    const write = use({ name: 'write', args: { text: name }, id: 'w1' });
    server.model.script(`${chat.agent}-${name}`, write, say(`${name} is done.`));
  }
  const start = ({ name }: { name: string }) => ({
    name: 'create_sub_agent',
    id: `call_${name}`,
    args: { name, input: 'write', model: `${chat.agent}-${name}` },
  });
  chat.script(use(...names.map((name) => start({ name }))), say('Both are done.'));
  const reader = chat.turn('go');
  await reader.type('turn.paused');
  const threads = reader.frames.flatMap((one) => (one.type === 'thread.created' ? [one.thread_id] : []));
  const [first = '', second = ''] = threads;
  expect((await answer(chat, allow('w1', second))).status).toBe(200);
  await reader.next((one) => one.type === 'thread.done' && one.thread_id === second);
  expect((await answer(chat, allow('w1', first))).status).toBe(200);
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Both are done.' } });
  const pauses = (await reader.done).filter(({ type }) => /^turn\.(paused|resumed)/.test(type));
  expect(pauses.map(({ type }) => type)).toEqual(['turn.paused', 'turn.resumed', 'turn.paused', 'turn.resumed']);
});

test('the rounds that a request allows are counted over the pauses of its turn', async () => {
  const chat = await server.chat({
    scripts: [use({ name: 'write', id: 'w1' }), use({ name: 'write', id: 'w2' }), say('Too late.')],
    spec,
  });
  const reader = chat.turn('write', { max_turns: 2 });
  for (const id of ['w1', 'w2']) {
    await reader.next((one) => one.type === 'tool.approval_required' && one.tool_calls[0]?.id === id);
    expect((await answer(chat, allow(id))).status).toBe(200);
  }
  expect(await reader.end()).toMatchObject({ status: 'done', ended_by: 'max_turns', required_actions: [] });
  expect(chat.requests()).toHaveLength(2);
});
