import { afterEach, beforeEach, expect, inject, test, vi } from 'vitest';
import { CUT_OFF } from '../../src/core/stopped-work.ts';
import { EngineError } from '../../src/engine/errors.ts';
import { SessionCommands } from '../../src/engine/session-commands.ts';
import { TurnIndex } from '../../src/engine/turn-index.ts';
import { InProcessBus } from '../../src/live/in-process-bus.ts';
import { SpeculativeCalls } from '../../src/features/speculation/speculative-calls.ts';
import { StepsAhead } from '../../src/features/speculation/steps-ahead.ts';
import { eventually } from '../support/eventually.ts';
import { Exposition, type Sample } from '../support/prometheus.ts';
import { held, say, use } from '../support/scripted-model.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { onTestServer, startTestServer, type TestServer } from '../support/test-server.ts';
import { folded } from '../support/api-client.ts';

let proxy: TcpProxy;
let server: TestServer;
let bus: InProcessBus;
const writing = Promise.withResolvers<void>();
/** The calls of the tool that only reads; the second one waits. */
const looks = { begun: 0, mayEnd: Promise.withResolvers<void>() };
beforeEach(async () => {
  proxy = await TcpProxy.start(inject('temporalAddress'));
  bus = new InProcessBus();
  server = await startTestServer({
    bus,
    env: { TEMPORAL_ADDRESS: proxy.address },
    mcp: {
      tools: [
        {
          name: 'write',
          annotations: { destructiveHint: true },
          handler: async () => {
            await writing.promise;
            return 'written';
          },
        },
        {
          name: 'look',
          annotations: { readOnlyHint: true },
          handler: async () => {
            looks.begun += 1;
            if (looks.begun === 2) await looks.mayEnd.promise;
            return 'seen';
          },
        },
      ],
    },
  });
});
afterEach(async () => {
  vi.restoreAllMocks();
  proxy.up();
  proxy.flow();
  await server.stop();
  await proxy.stop();
});

test('the model is called before Temporal has the turn, once, and none of its output is lost', async () => {
  const gate = held(
    (call) => call.text('Well, '),
    (call) => call.text('hello.').finish(),
  );
  const chat = await server.chat({ scripts: [gate.script] });
  proxy.hold();
  const turn = chat.turn('hi');
  await gate.reached;
  proxy.flow();
  await turn.says('Well, ');
  gate.release();
  const live = await turn.done;
  expect(folded(live)).toContainEqual(expect.objectContaining({ type: 'model.message', content: 'Well, hello.' }));
  expect(folded(await server.api.subscribe(chat.sessionId, await turn.turnId()).done)).toEqual(folded(live));
  expect(chat.requests()).toHaveLength(1);
});

test('a speculative call has the whole conversation, including large texts and tools', async () => {
  const chat = await server.chat({ spec: onTestServer, scripts: [say('One.'), say('Two.'), say('Three.')] });
  await chat.turn('first').done;
  await chat.turn([{ type: 'user.message', content: [{ type: 'text', text: 'x'.repeat(150_000) }] }]).done;
  await chat.turn('third').done;
  const [, second, third] = chat.requests();
  expect(third?.messages.slice(0, second?.messages.length)).toEqual(second?.messages);
  expect(third?.messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'user', 'assistant', 'user']);
  expect(third?.tools).toEqual(second?.tools);
});

test('no model is called ahead while it is not known which turn the new one follows', async () => {
  const chat = await server.chat({ scripts: [say('One.'), say('Two.')] });
  const indexed = Promise.withResolvers<void>();
  // oxlint-disable-next-line typescript/unbound-method -- called with its object
  const accept = TurnIndex.prototype.accept;
  vi.spyOn(TurnIndex.prototype, 'accept').mockImplementation(async function (this: TurnIndex, start) {
    await indexed.promise;
    return accept.call(this, start);
  });
  await chat.turn('first').done;
  const second = chat.turn('second');
  await second.says('Two.');
  indexed.resolve();
  await second.done;
  expect(chat.requests().map(({ messages }) => messages.length)).toEqual([1, 3]);
});

test('a turn that is not created ends the call', async () => {
  const gate = held(
    (call) => call.text('Nobody will '),
    () => undefined,
  );
  const chat = await server.chat({ scripts: [gate.script, say('Here I am.')] });
  proxy.down();
  const refused = server.api.send('POST', `${chat.path}/turns`, { input: [{ type: 'user.message', content: 'hi' }] });
  const call = await gate.reached;
  expect((await refused).status).toBe(503);
  await call.closed;
  // A call that was not ended with its request would have expired.
  expect(await speculativeCalls()).toEqual({ withdrawn: 1 });
  proxy.up();
  await expect.poll(async () => (await server.api.send('GET', '/readyz')).status).toBe(200);
  const turn = chat.turn('hi');
  await turn.says('Here I am.');
  await turn.done;
  expect(chat.requests()).toHaveLength(2);
});

test('a repeated request does not call the model', async () => {
  const chat = await server.chat({ scripts: [say('Once.')] });
  const key = { 'idempotency-key': 'k' };
  await chat.turn('hi', {}, key).done;
  await chat.turn('hi', {}, key).done;
  expect(await speculativeCalls()).toEqual({ claimed: 1 });
});

test('one of several concurrent turns has a speculative call', async () => {
  const chat = await server.chat({ scripts: Array.from({ length: 4 }, (_, i) => say(`Answer ${i}.`)) });
  proxy.hold();
  const turns = [1, 2, 3].map((i) => chat.turn(`at once ${i}`));
  const rows = () => server.database.rows.selectFrom('turns').selectAll().where('session_id', '=', chat.sessionId);
  await expect.poll(async () => (await rows().execute()).length).toBe(3);
  proxy.flow();
  const ends = await Promise.all(turns.map((turn) => turn.end()));
  for (const { status } of ends) expect(['done', 'cancelled']).toContain(status);
  expect(ends.some(({ status }) => status === 'done')).toBe(true);
  // Temporal may have received another one first, and the turn may have been cancelled by the next one before its call.
  const outcomes = [{ claimed: 1 }, { mismatched: 1 }, { withdrawn: 1 }];
  await eventually(async () => expect(outcomes).toContainEqual(await speculativeCalls()));
});

/** The outcomes of the speculative calls. */
function speculativeCalls(): Promise<Record<string, number>> {
  return counts('everturn_speculative_calls_total', ({ outcome }) => String(outcome));
}

/** The outcomes of the steps that began early, by their work. */
function speculativeSteps(): Promise<Record<string, number>> {
  return counts('everturn_speculative_steps_total', ({ work, outcome }) => `${work} ${outcome}`);
}

async function counts(counter: string, keyOf: (labels: Sample['labels']) => string): Promise<Record<string, number>> {
  const { samples } = new Exposition(await (await fetch(`${server.api.url}/metrics`)).text());
  const some = samples.filter(({ name, value }) => name === counter && value > 0);
  return Object.fromEntries(some.map(({ labels, value }) => [keyOf(labels), value]));
}

test('a turn that follows a running one calls its model after that one has ended', async () => {
  const gate = held(
    (call) => call.text('I was saying'),
    () => undefined,
  );
  const chat = await server.chat({ scripts: [gate.script, say('Yes?')] });
  const first = chat.turn('talk');
  await first.says('I was saying');
  const second = chat.turn('stop');
  await second.done;
  expect((await first.end()).status).toBe('cancelled');
  const [, request] = chat.requests();
  expect(request?.messages.map(({ content }) => content)).toEqual(['talk', 'I was saying', CUT_OFF, 'stop']);
  expect(chat.requests()).toHaveLength(2);
});

test('a turn that answers calls runs them first', async () => {
  const chat = await server.chat({
    spec: onTestServer,
    scripts: [use({ name: 'write', id: 'w1' }), say('Done.')],
  });
  await chat.turn('write').done;
  const called = server.mcp.calls.length;
  const approval = { type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'w1', approval: { status: 'allow' } };
  const turn = chat.turn([approval]);
  await expect.poll(() => server.mcp.calls.length).toBe(called + 1);
  expect(chat.requests()).toHaveLength(1);
  writing.resolve();
  await turn.done;
  expect(chat.requests()).toHaveLength(2);
});

test('a message while calls are pending is rejected, and the model is not called', async () => {
  const chat = await server.chat({ spec: onTestServer, scripts: [use({ name: 'write', id: 'w1' })] });
  await chat.turn('write').done;
  const refused = await server.api.send('POST', `${chat.path}/turns`, {
    input: [{ type: 'user.message', content: 'and?' }],
  });
  expect(refused.status).toBe(422);
  expect(chat.requests()).toHaveLength(1);
});

test('the answer is shown from the acceptance of the turn on, before its model call begins, which continues it', async () => {
  const gate = held(
    (call) => call.text('Well, '),
    (call) => call.text('hello.').finish(),
  );
  const chat = await server.chat({ scripts: [gate.script], spec: onTestServer });
  const mayClaim = Promise.withResolvers<void>();
  // oxlint-disable-next-line typescript/unbound-method -- called on what the spy is called on
  const { claim } = SpeculativeCalls.prototype;
  vi.spyOn(SpeculativeCalls.prototype, 'claim').mockImplementationOnce(async function (
    this: SpeculativeCalls,
    ...given
  ) {
    await mayClaim.promise;
    return claim.apply(this, given);
  });
  const turn = chat.turn('hi');
  await turn.says('Well, ');
  expect(turn.frames.map(({ type }) => type)).toEqual([
    'turn.created',
    'mcp.initialize',
    'model.message',
    'model.message.delta',
  ]);
  gate.release();
  await turn.says('hello.');
  mayClaim.resolve();
  const frames = await turn.done;
  expect(frames.map(({ type, sequence_number: n }) => [n, type])).toEqual([
    [1_000_000, 'turn.created'],
    [1_000_001, 'mcp.initialize'],
    [1_000_002, 'model.message'],
    [1_000_003, 'model.message.delta'],
    [1_000_004, 'model.message.delta'],
    [3_000_000, 'model.message.delta'],
    [4_000_000, 'turn.done'],
  ]);
  expect(folded(await server.api.subscribe(chat.sessionId, await turn.turnId()).done)).toEqual(folded(frames));
  expect(chat.requests()).toHaveLength(1);
});

test.each(['session_closed', 'call_not_pending', 'forbidden'] as const)(
  'a turn that its session rejects (%s) has shown nothing, and has no message in progress',
  async (code) => {
    const publish = vi.spyOn(bus, 'publish');
    const gate = held(
      (call) => call.text('Nobody will hear '),
      () => undefined,
    );
    const chat = await server.chat({ scripts: [gate.script], spec: onTestServer });
    vi.spyOn(SessionCommands.prototype, 'createTurn').mockImplementationOnce(async () => {
      await (await gate.reached).sent();
      throw new EngineError(code, 'no');
    });
    const refused = await server.api.send('POST', `${chat.path}/turns`, {
      input: [{ type: 'user.message', content: 'hi' }],
    });
    expect(refused.body).toMatchObject({ error: { code } });
    await (
      await gate.reached
    ).closed;
    expect(publish).not.toHaveBeenCalled();
    expect(await speculativeCalls()).toEqual({ withdrawn: 1 });
  },
);

test('a first attempt that fails before it has claimed the response ends the call, which is no attempt of the turn', async () => {
  const gate = held(
    (call) => call.text('For '),
    () => undefined,
  );
  const chat = await server.chat({ scripts: [gate.script, say('Here.')] });
  const shown = Promise.withResolvers<void>();
  vi.spyOn(SpeculativeCalls.prototype, 'claim').mockImplementationOnce(async () => {
    await shown.promise;
    throw new Error('the worker is confused');
  });
  const turn = chat.turn('hi');
  await turn.says('For ');
  shown.resolve();
  await (
    await gate.reached
  ).closed;
  expect(await turn.end()).toMatchObject({
    status: 'done',
    output: { content: 'Here.' },
    metrics: { unreported_attempts: 0 },
  });
  const live = folded(await turn.done);
  expect(folded(await server.api.subscribe(chat.sessionId, await turn.turnId()).done)).toEqual(live);
  expect(await speculativeCalls()).toEqual({ withdrawn: 1 });
});

test('a turn that ends before its first model call ends its speculative call; its message stays, without text', async () => {
  const gate = held(
    (call) => call.text('Nobody will '),
    () => undefined,
  );
  const chat = await server.chat({ scripts: [gate.script], spec: onTestServer });
  vi.spyOn(SpeculativeCalls.prototype, 'claim').mockImplementationOnce((_call, signal) => {
    return new Promise((_resolve, reject) => {
      signal.addEventListener('abort', () => reject(new Error('cancelled')), { once: true });
    });
  });
  const turn = chat.turn('hi');
  const call = await gate.reached;
  await turn.says('Nobody will ');
  await server.api.send('POST', `${chat.path}/cancel`, {});
  expect((await turn.end()).status).toBe('cancelled');
  await call.closed;
  const live = folded(await turn.done);
  const turnId = await turn.turnId();
  expect(live).toMatchObject([
    { type: 'turn.created' },
    { type: 'mcp.initialize', mcp_servers: [] },
    { type: 'model.message', id: turnId.replace('turn', 'msg'), content: '', finish_reason: 'cancelled' },
    { type: 'turn.done' },
  ]);
  expect(folded(await server.api.subscribe(chat.sessionId, turnId).done)).toEqual(live);
  expect(await speculativeCalls()).toEqual({ withdrawn: 1 });
});

test('a turn that is cancelled as soon as it is accepted has the message that its readers were shown', async () => {
  const gate = held(
    (call) => call.text('Nobody will '),
    () => undefined,
  );
  const chat = await server.chat({ scripts: [gate.script], spec: onTestServer });
  const turn = chat.turn('hi');
  await gate.reached;
  const turnId = await turn.turnId();
  await server.api.send('POST', `${chat.path}/cancel`, {});
  expect((await turn.end()).status).toBe('cancelled');
  const live = folded(await turn.done);
  expect(live).toMatchObject([
    { type: 'turn.created' },
    { type: 'mcp.initialize' },
    { type: 'model.message', id: turnId.replace('turn', 'msg'), finish_reason: 'cancelled' },
    { type: 'turn.done' },
  ]);
  expect(folded(await server.api.subscribe(chat.sessionId, turnId).done)).toEqual(live);
});

test('a read-only tool and the next model call begin while Temporal does not answer, once each', async () => {
  const second = held(
    (call) => call.text('Again. '),
    (call) => call.toolCall('look', {}, 'call_2').finish(),
  );
  const third = held(
    (call) => call.text('I '),
    (call) => call.text('see.').finish(),
  );
  const chat = await server.chat({
    spec: onTestServer,
    scripts: [use({ name: 'look', id: 'call_1' }), second.script, third.script],
  });
  const claimTool = vi.spyOn(StepsAhead.prototype, 'claimTool');
  const turn = chat.turn('look');
  // Shown once the activity has claimed the call.
  await turn.says('Again. ');
  proxy.hold();
  second.release();
  await expect.poll(() => looks.begun).toBe(2);
  proxy.flow();
  await expect.poll(() => claimTool.mock.results.filter(({ value }) => value).length).toBe(2);
  proxy.hold();
  looks.mayEnd.resolve();
  await third.reached;
  third.release();
  proxy.flow();
  expect(await turn.end()).toMatchObject({ status: 'done', metrics: { unreported_attempts: 0 } });
  expect(await speculativeSteps()).toEqual({ 'tool_call claimed': 2, 'model_call claimed': 2 });
  expect([chat.requests().length, server.mcp.count('tools/call')]).toEqual([3, 2]);
  const results = chat.requests()[2]?.messages.filter(({ role }) => role === 'tool');
  expect(results).toMatchObject([{ tool_call_id: 'call_1' }, { tool_call_id: 'call_2' }]);
});
