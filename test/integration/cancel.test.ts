import { afterAll, beforeAll, expect, test } from 'vitest';
import { CUT_OFF } from '../../src/core/stopped-work.ts';
import type { Topic } from '../../src/live/bus.ts';
import { InProcessBus } from '../../src/live/in-process-bus.ts';
import { folded } from '../support/api-client.ts';
import { held, say, use, type Script } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

let server: TestServer;
const running = new Map<string, AbortSignal>();
beforeAll(async () => {
  server = await startTestServer({
    mcp: {
      tools: ['slow', 'slow_read'].map((name) => ({
        name,
        ...(name === 'slow_read' && { annotations: { readOnlyHint: true } }),
        handler: (args, { signal }) => {
          running.set(String(args['id']), signal);
          return new Promise<string>((resolve) => {
            signal.addEventListener('abort', () => resolve('too late'));
          });
        },
      })),
    },
  });
});
afterAll(() => server.stop());

const cancel = (chat: Chat, body: object = {}) => server.api.send('POST', `${chat.path}/cancel`, body);

test('a turn cancelled in mid-stream keeps its text, and the next turn continues from it', async () => {
  const model = held(
    (call) => call.text('Once upon ').text('a time'),
    () => undefined,
  );
  const chat = await server.chat({ scripts: [model.script, say('there was.')] });
  const reader = chat.turn('tell me');
  await reader.says('Once upon a time');
  const call = await model.reached;
  expect((await cancel(chat)).body).toEqual({});
  const frames = await reader.done;
  expect(await reader.end()).toMatchObject({ status: 'cancelled', reason: 'client-cancelled', phase: 'model' });
  await call.closed; // the request to the model is ended
  expect(folded(frames)[1]).toMatchObject({ content: 'Once upon a time', finish_reason: 'cancelled', tool_calls: [] });
  await chat.turn('go on').done;
  expect(chat.requests()[1]?.messages.map(({ role, content }) => [role, content])).toEqual([
    ['user', 'tell me'],
    ['assistant', 'Once upon a time'],
    ['user', CUT_OFF],
    ['user', 'go on'],
  ]);
  model.release();
});

test('a new turn ends the running one before its own first model call', async () => {
  const model = held(
    (call) => call.text('I am '),
    () => undefined,
  );
  const chat = await server.chat({ scripts: [model.script, say('new')] });
  const first = chat.turn('old');
  await first.type('model.message.delta');
  const call = await model.reached;
  let closed = false;
  void call.closed.then(() => (closed = true));
  const second = chat.turn('new');
  expect(await first.end()).toMatchObject({ status: 'cancelled', reason: 'cancelled-for-next-turn' });
  await second.done;
  expect(closed).toBe(true);
  expect((await second.type('turn.created')).previous_turn_id).toBe(await first.turnId());
  expect(chat.requests()[1]?.messages.map(({ content }) => content)).toEqual(['old', 'I am ', CUT_OFF, 'new']);
  const [newest, older] = await server.api.list<{ state: { status: string } }>(`${chat.path}/turns`, 25);
  expect([newest?.state.status, older?.state.status]).toEqual(['done', 'cancelled']);
  model.release();
});

test('with on_running: reject a turn begins only if no other runs; the agent sets the default', async () => {
  const model = held(
    (call) => call.text('busy'),
    () => undefined,
  );
  const chat = await server.chat({
    scripts: [model.script, say('three'), say('four')],
    spec: { config: { on_running: 'reject' } },
  });
  const first = chat.turn('one');
  await first.says('busy');
  const post = (body: object) =>
    server.api.send('POST', `${chat.path}/turns`, { input: [{ type: 'user.message', content: 'two' }], ...body });
  for (const body of [{}, { on_running: 'reject' }, { stream: false }, { previous_turn_id: 'none' }]) {
    const refused = await post(body);
    expect([refused.status, refused.body.error.code]).toEqual([409, 'turn_running']);
  }
  expect((await post({ on_running: 'rejct' })).body.error).toMatchObject({ param: 'on_running' });
  // The request decides before the agent does.
  const third = chat.turn('three', { on_running: 'cancel' });
  expect(await first.end()).toMatchObject({ status: 'cancelled', reason: 'cancelled-for-next-turn' });
  expect((await third.end()).status).toBe('done');
  expect((await chat.turn('four').end()).status).toBe('done');
  expect(chat.requests().map(({ messages }) => messages.at(-1)?.content)).toEqual(['one', 'three', 'four']);
  model.release();
});

test('calls that a cancelled turn leaves open are answered to the model; the log says which of them had started', async () => {
  const chat = await server.chat({
    scripts: [
      use(
        { name: 'slow', args: { id: 'once' }, id: 's1' },
        { name: 'slow_read', args: { id: 'read' }, id: 's2' },
        { name: 'ask_user_question', args: { question: '?' }, id: 'q1' },
      ),
      say('I see'),
    ],
    spec: onTestServer,
  });
  const reader = chat.turn('go');
  await expect.poll(() => [running.has('once'), running.has('read')]).toEqual([true, true]);
  await cancel(chat);
  const frames = await reader.done;
  const outcomes = frames.flatMap((f) => (f.type === 'tool.response' ? [[f.tool_call_id, f.outcome] as const] : []));
  expect(Object.fromEntries(outcomes)).toEqual({ s1: 'unknown_outcome', s2: 'cancelled', q1: 'cancelled' });
  // The tools received the cancellation.
  await expect.poll(() => [running.get('once')?.aborted, running.get('read')?.aborted]).toEqual([true, true]);
  await chat.turn('and now?').done;
  const results = chat.requests()[1]?.messages.filter(({ role }) => role === 'tool') ?? [];
  expect(results.map(({ tool_call_id: id }) => id)).toEqual(['s1', 's2', 'q1']);
  expect(results[0]?.content).toMatch(/unknown/);
  expect(results[2]?.content).toMatch(/not executed/);
});

test('a cancel without a running turn succeeds, also when repeated', async () => {
  const chat = await server.chat();
  expect((await cancel(chat)).status).toBe(200);
  await chat.turn('hi').done;
  expect((await cancel(chat)).status).toBe(200);
  expect((await cancel(chat)).status).toBe(200);
  expect((await chat.turn('still there?').end()).status).toBe('done');
  const bodyless = await server.api.send('POST', `${chat.path}/cancel`);
  expect([bodyless.status, bodyless.body.error.code]).toEqual([400, 'invalid_request']);
});

test('a closed session accepts no further turns', async () => {
  const model = held(
    (call) => call.text('...'),
    () => undefined,
  );
  const chat = await server.chat({ scripts: [model.script] });
  const reader = chat.turn('hi');
  await reader.type('model.message.delta');
  expect((await cancel(chat, { close: true })).status).toBe(200);
  expect((await reader.end()).status).toBe('cancelled');
  const refused = await server.api.send('POST', `${chat.path}/turns`, {
    input: [{ type: 'user.message', content: 'x' }],
  });
  expect([refused.status, refused.body.error.code]).toEqual([409, 'session_closed']);
  expect((await server.api.send('GET', chat.path)).status).toBe(200);
  model.release();
});

/** A bus that loses the hints of cancels. */
class HintlessBus extends InProcessBus {
  readonly hints: string[] = [];

  override hint(topic: Topic): void {
    if (topic.startsWith('cancel:')) this.hints.push(topic);
    else super.hint(topic);
  }
}

test('a cancel whose hint is lost is carried out', async () => {
  const bus = new HintlessBus();
  const hintless = await startTestServer({ bus });
  const models = [0, 1].map(() =>
    held(
      (call) => call.text('wait'),
      () => undefined,
    ),
  );
  try {
    const chat = await hintless.chat({ scripts: models.map(({ script }) => script) });
    const first = chat.turn('one');
    await first.says('wait');
    const second = chat.turn('two');
    expect(await first.end()).toMatchObject({ status: 'cancelled', reason: 'cancelled-for-next-turn' });
    await second.says('wait');
    await hintless.api.send('POST', `${chat.path}/cancel`, {});
    expect(await second.end()).toMatchObject({ status: 'cancelled', reason: 'client-cancelled' });
    expect(bus.hints).toEqual([`cancel:${await first.turnId()}`, `cancel:${await second.turnId()}`]);
  } finally {
    for (const { release } of models) release();
    await hintless.stop();
  }
});

test('a turn that exceeds its time is cancelled with the reason', async () => {
  const impatient = await startTestServer({ env: { EVERTURN_TURN_TIMEOUT_SECONDS: '1' } });
  // On a busy machine the time of the first turn is over before it calls its model.
  const script: Script = (call) => (call.request.messages.length === 1 ? void call.text('wait') : say('ok')(call));
  try {
    const chat = await impatient.chat({ scripts: [script, script] });
    const reader = chat.turn('hi');
    expect(await reader.end()).toMatchObject({ status: 'cancelled', reason: 'server-execution-timeout' });
    const hasSpoken = (await reader.done).some((frame) => 'content' in frame && frame.content === 'wait');
    await impatient.restart({ EVERTURN_TURN_TIMEOUT_SECONDS: '3600' });
    expect(await chat.turn('and now?').end()).toMatchObject({ status: 'done' });
    const next = chat.requests().at(-1)?.messages ?? [];
    expect(next.map(({ content }) => content)).toEqual(['hi', ...(hasSpoken ? ['wait', CUT_OFF] : []), 'and now?']);
  } finally {
    await impatient.stop();
  }
});
