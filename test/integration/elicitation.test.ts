import { inputRequired, UrlElicitationRequiredError, type InputRequiredResult } from '@modelcontextprotocol/server';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { folded, type EventReader } from '../support/api-client.ts';
import type { RunningCall, TestMcpServer, TestTool } from '../support/mcp-server.ts';
import { say, use } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

/** MCP servers that ask the user: by a result (2026-07-28), and on the open connection (2025-11-25). */

const schema = {
  type: 'object' as const,
  properties: { email: { type: 'string' as const, format: 'email' as const }, days: { type: 'integer' as const } },
  required: ['email'],
};
const asks = (message: string) => inputRequired.elicit({ message, requestedSchema: schema });

/** A tool that asks `questions` in order, one at a time, and returns the answers. */
function asking(protocol: string, questions: string[], on?: 'session' | 'call') {
  return async (
    _: unknown,
    { elicit, inputResponses, requestState }: RunningCall,
  ): Promise<string | InputRequiredResult> => {
    if (protocol === '2025-11-25') {
      const answers = [];
      for (const message of questions) answers.push(await elicit({ message, requestedSchema: schema }, on));
      return JSON.stringify(answers);
    }
    const before = JSON.parse(requestState ?? '[]') as unknown[];
    const answers = [...before, ...Object.values(inputResponses ?? {})];
    const next = questions[answers.length];
    if (next === undefined) return JSON.stringify(answers);
    return inputRequired({
      inputRequests: { [`q${answers.length}`]: asks(next) },
      requestState: JSON.stringify(answers),
    });
  };
}

const payment = { message: 'Pay there', url: 'https://pay.example.com/order?id=7' };

/** A tool that has the user open a URL. */
function leading(protocol: string) {
  return async (_: unknown, { elicit, inputResponses }: RunningCall): Promise<string | InputRequiredResult> => {
    if (protocol === '2025-11-25') {
      return JSON.stringify(await elicit({ mode: 'url', elicitationId: 'order-7', ...payment }));
    }
    const answer = inputResponses?.['order'];
    return answer
      ? JSON.stringify(answer)
      : inputRequired({ inputRequests: { order: inputRequired.elicitUrl(payment) } });
  };
}

/** Operations whose user has visited the page. */
const visited = new Set<unknown>();

/** A tool that runs once the user has visited two pages. */
function unlocking(_: unknown, { meta }: RunningCall): string {
  const operation = meta['io.everturn/operation-id'];
  if (visited.has(operation)) return 'unlocked';
  visited.add(operation);
  throw new UrlElicitationRequiredError(
    ['a', 'b'].map((elicitationId) => ({ mode: 'url', elicitationId, ...payment })),
  );
}

const respond = (id: string, content: unknown) => ({
  type: 'user.tool_response',
  thread_id: 'main',
  tool_call_id: id,
  content: typeof content === 'string' ? content : JSON.stringify(content),
});
const accept = { action: 'accept', content: { email: 'ann@example.com', days: 3 } };

const toolsOf = (protocol: '2026-07-28' | '2025-11-25'): TestTool[] => [
  { name: 'book', handler: asking(protocol, ['Where to?']) },
  { name: 'pay', handler: leading(protocol) },
  { name: 'unlock', handler: unlocking },
  { name: 'quiz', handler: asking(protocol, ['One?', 'Two?'], 'call') },
  {
    name: 'nag',
    handler: asking(
      protocol,
      Array.from({ length: 20 }, (_, n) => `Number ${n}?`),
    ),
  },
  { name: 'check', annotations: { readOnlyHint: true }, handler: asking(protocol, ['Sure?']) },
  { name: 'erase', annotations: { destructiveHint: true }, handler: () => 'erased' },
];

async function waiting(chat: Chat, reader: EventReader): Promise<{ id: string; elicitation: unknown }[]> {
  const end = await reader.end();
  if (end.status !== 'done') throw new Error(`${chat.sessionId}: ${JSON.stringify(end)}`);
  expect(end.output).toBe(null);
  return end.required_actions.flatMap(({ tool_calls: calls }) =>
    calls.map(({ id, elicitation }) => ({ id, elicitation })),
  );
}

function resultsIn(chat: Chat): unknown[] {
  const messages = chat.requests().at(-1)?.messages ?? [];
  return messages.flatMap(({ role, content }) => (role === 'tool' ? [content] : []));
}

describe.each(['2026-07-28', '2025-11-25'] as const)('a server of %s', (protocol) => {
  let server: TestServer;
  let mcp: TestMcpServer;
  beforeAll(async () => {
    server = await startTestServer({ mcp: { protocol, tools: toolsOf(protocol) } });
    mcp = server.mcp;
  });
  afterAll(() => server.stop());

  const question = (message: string) => ({ mode: 'form', message, requested_schema: schema });

  test('asks the user, and the answer continues the same call', async () => {
    const chat = await server.chat({ scripts: [use({ name: 'book', id: 'b' }), say('Booked.')], spec: onTestServer });
    const first = chat.turn('go');
    expect(await waiting(chat, first)).toEqual([{ id: 'b', elicitation: question('Where to?') }]);
    expect((await first.done).some(({ type }) => type === 'tool.response')).toBe(false);
    const second = chat.turn([respond('b', accept)]);
    const response = await second.type('tool.response');
    expect(response).toMatchObject({ tool_call_id: 'b', outcome: 'succeeded', content: JSON.stringify([accept]) });
    expect(await second.end()).toMatchObject({ status: 'done', output: { content: 'Booked.' } });
    expect(resultsIn(chat)).toEqual([JSON.stringify([accept])]);
    const operations = new Set(
      mcp.calls.filter(({ tool }) => tool === 'book').map(({ meta }) => meta['io.everturn/operation-id']),
    );
    expect(operations).toEqual(new Set([`${await first.turnId()}/b`]));
    // The question is in the lists too, and its state in none.
    const events = JSON.stringify(await server.api.list(`${chat.path}/events`));
    expect(events).toContain('Where to?');
    expect(events).not.toContain('keptOpenBy');
    expect(await chat.turn('and now?').end()).toMatchObject({ status: 'done' });
  });

  test('has the user open a URL: only whether that was done passes through here', async () => {
    const chat = await server.chat({ scripts: [use({ name: 'pay', id: 'p' }), say('Paid.')], spec: onTestServer });
    expect(await waiting(chat, chat.turn('go'))).toEqual([{ id: 'p', elicitation: { mode: 'url', ...payment } }]);
    const answered = chat.turn([respond('p', { action: 'accept', content: { card: '4242' } })]);
    expect(await answered.end()).toMatchObject({ output: { content: 'Paid.' } });
    expect(resultsIn(chat)).toEqual([JSON.stringify({ action: 'accept' })]);
  });

  // The later protocol has no such error.
  test.runIf(protocol === '2025-11-25')('may have the user visit pages before it runs a call', async () => {
    for (const action of ['accept', 'decline']) {
      const chat = await server.chat({ scripts: [use({ name: 'unlock', id: 'u' }), say('Well.')], spec: onTestServer });
      const page = [{ id: 'u', elicitation: { mode: 'url', ...payment } }];
      expect(await waiting(chat, chat.turn('go'))).toEqual(page);
      expect(await waiting(chat, chat.turn([respond('u', { action: 'accept' })]))).toEqual(page);
      expect(await chat.turn([respond('u', { action })]).end()).toMatchObject({ output: { content: 'Well.' } });
      const result = action === 'accept' ? 'unlocked' : expect.stringContaining('requires a page to be visited');
      expect(resultsIn(chat)).toEqual([result]);
    }
  });

  test('may ask several times in one call', async () => {
    const chat = await server.chat({ scripts: [use({ name: 'quiz', id: 'q' }), say('Done.')], spec: onTestServer });
    expect(await waiting(chat, chat.turn('go'))).toEqual([{ id: 'q', elicitation: question('One?') }]);
    const again = chat.turn([respond('q', accept)]);
    expect(await waiting(chat, again)).toEqual([{ id: 'q', elicitation: question('Two?') }]);
    expect(await chat.turn([respond('q', { action: 'decline' })]).end()).toMatchObject({
      output: { content: 'Done.' },
    });
    expect(resultsIn(chat)).toEqual([JSON.stringify([accept, { action: 'decline' }])]);
  });

  test('gets the refusal or the cancellation of the user', async () => {
    for (const action of ['decline', 'cancel']) {
      const chat = await server.chat({ scripts: [use({ name: 'book', id: 'b' }), say('Ok.')], spec: onTestServer });
      await waiting(chat, chat.turn('go'));
      expect((await chat.turn([respond('b', { action })]).end()).status).toBe('done');
      expect(resultsIn(chat)).toEqual([JSON.stringify([{ action }])]);
    }
  });

  test('never gets an answer that does not fit: it is rejected with the place, and nothing is applied', async () => {
    const chat = await server.chat({ scripts: [use({ name: 'book', id: 'b' }), say('Ok.')], spec: onTestServer });
    await waiting(chat, chat.turn('go'));
    for (const [content, problem] of [
      ['yes', /not JSON/],
      ['5', /form/],
      ['{"action": "maybe"}', /action/],
      [{ action: 'accept' }, /email/],
      [{ action: 'accept', content: { email: 'nobody' } }, /\/email must match format/],
      [{ action: 'accept', content: { ...accept.content, days: 'x' } }, /\/days must be integer/],
      [{ action: 'accept', content: { email: { of: 'ann' } } }, /content\/email/],
      ['x'.repeat(100_000), /longer/],
    ] as const) {
      const { status, body } = await server.api.send('POST', `${chat.path}/turns`, { input: [respond('b', content)] });
      expect([status, body.error.code, body.error.param]).toEqual([422, 'invalid_answer', 'input.0.content']);
      expect(body.error.message).toMatch(problem);
    }
    expect((await chat.turn([respond('b', accept)]).end()).status).toBe('done');
    expect(resultsIn(chat)).toEqual([JSON.stringify([accept])]);
  });

  test('asks in parallel calls, beside an approval, and each gets its own answer', async () => {
    const chat = await server.chat({
      scripts: [
        use(
          { name: 'book', id: 'b1' },
          { name: 'book', id: 'b2' },
          { name: 'check', id: 'c' },
          { name: 'erase', id: 'e' },
        ),
        say('All done.'),
      ],
      spec: onTestServer,
    });
    const calls = await waiting(chat, chat.turn('go'));
    expect(calls.map(({ id }) => id).toSorted()).toEqual(['b1', 'b2', 'c', 'e']);
    const [first, second] = ['one', 'two'].map((name) => ({
      action: 'accept',
      content: { email: `${name}@example.com` },
    }));
    const approval = {
      type: 'user.tool_approval',
      thread_id: 'main',
      tool_call_id: 'e',
      approval: { status: 'allow' },
    };
    const answers = [respond('c', { action: 'cancel' }), respond('b2', second), approval, respond('b1', first)];
    expect(await chat.turn(answers).end()).toMatchObject({ output: { content: 'All done.' } });
    expect(resultsIn(chat)).toEqual([
      JSON.stringify([first]),
      JSON.stringify([second]),
      JSON.stringify([{ action: 'cancel' }]),
      'erased',
    ]);
  });

  test('asks in a turn that waits, which continues with the answers one by one', async () => {
    const chat = await server.chat({
      scripts: [use({ name: 'quiz', id: 'q' }, { name: 'book', id: 'b' }), say('All done.')],
      spec: { ...onTestServer, config: { pause: 'wait' } },
    });
    const reader = chat.turn('go');
    await reader.type('turn.paused');
    const answer = (id: string, content: unknown) =>
      server.api.send('POST', `${chat.path}/actions`, { input: [respond(id, content)] });
    const asked = () =>
      reader.frames.flatMap((frame) => (frame.type === 'tool.response_required' ? frame.tool_calls : []));
    expect(
      asked()
        .map(({ id }) => id)
        .toSorted(),
    ).toEqual(['b', 'q']);
    const refused = await answer('b', { action: 'accept', content: { email: 5 } });
    expect([refused.status, refused.body.error.code]).toEqual([422, 'invalid_answer']);
    expect((await answer('q', accept)).status).toBe(200);
    await reader.next(() => asked().length === 3);
    expect(asked()[2]).toMatchObject({ id: 'q', elicitation: question('Two?') });
    expect((await answer('b', accept)).status).toBe(200);
    // The response may have been lost: the same again is accepted, also after the end, and changes nothing.
    expect((await answer('b', accept)).status).toBe(200);
    expect((await answer('b', { action: 'cancel' })).status).toBe(409);
    expect((await answer('q', { action: 'cancel' })).status).toBe(200);
    expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'All done.' } });
    expect(resultsIn(chat)).toEqual([JSON.stringify([accept, { action: 'cancel' }]), JSON.stringify([accept])]);
    for (const [id, content] of [
      ['q', accept],
      ['q', { action: 'cancel' }],
      ['b', accept],
    ] as const) {
      expect((await answer(id, content)).status).toBe(200);
    }
    expect((await answer('b', { action: 'cancel' })).status).toBe(409);
    const replay = await server.api.subscribe(chat.sessionId, await reader.turnId()).done;
    expect(folded(replay)).toEqual(folded(await reader.done));
  });

  test('asks in a turn that is cancelled while it waits: the call has an unknown outcome, and the session continues', async () => {
    const chat = await server.chat({
      scripts: [use({ name: 'book', id: 'b' })],
      spec: { ...onTestServer, config: { pause: 'wait' } },
    });
    const reader = chat.turn('go');
    await reader.type('turn.paused');
    await server.api.send('POST', `${chat.path}/cancel`, {});
    expect((await reader.end()).status).toBe('cancelled');
    expect(await reader.type('tool.response')).toMatchObject({ outcome: 'unknown_outcome' });
    expect(await chat.turn('and now?').end()).toMatchObject({ status: 'done' });
  });

  test('that asks for ever is stopped', async () => {
    const chat = await server.chat({ scripts: [use({ name: 'nag', id: 'n' }), say('Enough.')], spec: onTestServer });
    let reader = chat.turn('go');
    for (let n = 0; n < 8; n++) {
      expect(await waiting(chat, reader)).toEqual([{ id: 'n', elicitation: question(`Number ${n}?`) }]);
      reader = chat.turn([respond('n', accept)]);
    }
    expect(await reader.end()).toMatchObject({ output: { content: 'Enough.' } });
  });

  test('that asks in more calls than one event can have gets a cancellation for the further ones', async () => {
    const calls = Array.from({ length: 40 }, (_, n) => ({ name: 'book', id: `b${n}` }));
    const chat = await server.chat({ scripts: [use(...calls), say('Ok.')], spec: onTestServer });
    const pending = await waiting(chat, chat.turn('go'));
    expect(pending.length).toBe(32);
    expect((await chat.turn(pending.map(({ id }) => respond(id, accept))).end()).status).toBe('done');
    const results = resultsIn(chat);
    expect(results.filter((one) => one === JSON.stringify([accept])).length).toBe(32);
    expect(results.filter((one) => one === JSON.stringify([{ action: 'cancel' }])).length).toBe(8);
  });

  test('whose question another branch leaves unanswered does not hinder it', async () => {
    const chat = await server.chat({ scripts: [say('hello'), use({ name: 'book', id: 'b' })], spec: onTestServer });
    const first = chat.turn('hi');
    await first.done;
    const paused = chat.turn('go');
    await waiting(chat, paused);
    const refused = await server.api.send('POST', `${chat.path}/turns`, {
      input: [{ type: 'user.message', content: 'x' }],
    });
    expect(refused.body.error.code).toBe('actions_pending');
    await chat.turn('something else', { previous_turn_id: await first.turnId() }).done;
    await chat.turn([respond('b', accept)], { previous_turn_id: await paused.turnId() }).done;
    expect(resultsIn(chat)).toEqual([JSON.stringify([accept])]);
    await chat.turn('no, wait', { previous_turn_id: await paused.turnId() }).done;
    expect(resultsIn(chat)).toEqual([expect.stringContaining('not given in this conversation')]);
  });
});
