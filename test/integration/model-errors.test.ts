import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import type { WireModelMessage } from '../../src/api/sessions/wire/events.ts';
import { SilenceTimer } from '../../src/lib/timeout.ts';
import { folded } from '../support/api-client.ts';
import { held, say, use, type Script } from '../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer();
});
afterAll(() => server.stop());

const partial: Script = (call) => void call.text('I was ');

const passing: Record<string, Script> = {
  'a rate limit': (call) => call.fail(429, 'slow down'),
  'a rate limit with Retry-After': (call) => call.fail(429, 'slow down', { 'retry-after': '1' }),
  overload: (call) => call.fail(529, 'overloaded'),
  'a server error': (call) => call.fail(500, 'oops'),
  'a gateway time-out': (call) => call.fail(504, 'upstream'),
  'a connection that is cut at once': (call) => call.cut(),
  'a connection that is cut in mid-stream': async (call) => {
    await partial(call);
    call.cut();
  },
  'an answer that ends in the middle': async (call) => {
    await partial(call);
    call.end();
  },
  'an empty answer': (call) => {
    call.raw('');
    call.end();
  },
  'truncated JSON': async (call) => {
    await partial(call);
    call.raw('data: {"choices": [{"ind\n\n');
    call.end();
  },
  'an error in mid-stream': async (call) => {
    await partial(call);
    call.chunk({ error: { message: 'the engine broke', type: 'server_error' } });
    call.end();
  },
};

/** With these the model has not started to work; with the others the cost is unknown. */
const refusals = new Set(['a rate limit', 'a rate limit with Retry-After', 'overload', 'a server error']);

test.each(Object.entries(passing))('%s is retried, and the text is right', async (name, script) => {
  const chat = await server.chat({ scripts: [script, say('all well')] });
  const reader = chat.turn('hi');
  const frames = await reader.done;
  expect(await reader.end()).toMatchObject({
    status: 'done',
    output: { content: 'all well' },
    metrics: { total_output_tokens: 5, unreported_attempts: refusals.has(name) ? 0 : 1 },
  });
  expect(folded(frames)[1]).toMatchObject({ content: 'all well', finish_reason: 'stop' });
  expect(chat.requests().length).toBe(2);
});

describe('a model that is given up after a second of silence', () => {
  let impatient: TestServer;
  beforeAll(async () => {
    impatient = await startTestServer({
      env: { EVERTURN_MODEL_FIRST_CHUNK_SECONDS: '1', EVERTURN_MODEL_IDLE_SECONDS: '1' },
    });
  });
  afterAll(() => impatient.stop());

  const silent: [string, Script][] = [
    ['headers and then silence', (call) => void call.raw('')],
    ['silence in mid-stream', partial],
    ['total silence', () => undefined],
  ];
  test.each(silent)('%s is retried, and the text is right', async (_, script) => {
    // On a busy machine an attempt that is answered may take too long as well; each has twice the time of the one before.
    const chat = await impatient.chat({ scripts: [script, ...Array.from({ length: 9 }, () => say('all well'))] });
    const reader = chat.turn('hi');
    const [, message] = folded(await reader.done);
    expect(message).toMatchObject({ content: 'all well', finish_reason: 'stop' });
    const failures = (message as WireModelMessage).attempts?.map(({ failure }) => failure) ?? [];
    expect(new Set(failures)).toEqual(new Set(['stalled']));
    expect(await reader.end()).toMatchObject({
      status: 'done',
      output: { content: 'all well' },
      metrics: { total_output_tokens: 5, unreported_attempts: failures.length },
    });
    expect(chat.requests().length).toBeGreaterThan(1);
  });
});

test('Retry-After is observed', async () => {
  const times: number[] = [];
  const chat = await server.chat({
    scripts: [
      (call) => {
        times.push(Date.now());
        call.fail(429, 'slow down', { 'retry-after': '3' });
      },
      async (call) => {
        times.push(Date.now());
        await say('ok')(call);
      },
    ],
  });
  await chat.turn('hi').done;
  expect((times[1] ?? 0) - (times[0] ?? 0)).toBeGreaterThanOrEqual(2_900);
});

test.each([
  ['a bad request', (call) => call.fail(400, 'messages.3: that is no role'), 'that is no role'],
  ['a bad key', (call) => call.fail(401, 'Incorrect API key provided'), 'Incorrect API key'],
  ['a forbidden model', (call) => call.fail(403, 'not for you'), 'not for you'],
  [
    'an unknown model',
    (call) => call.fail(404, 'The model does not exist', {}, { code: 'model_not_found' }),
    'does not exist',
  ],
  [
    'an account without credit',
    (call) => call.fail(429, 'You exceeded your quota', {}, { code: 'insufficient_quota' }),
    'quota',
  ],
  ['a wait that is too long', (call) => call.fail(429, 'come back tomorrow', { 'retry-after': '86400' }), 'tomorrow'],
] satisfies [string, Script, string][])('%s ends the turn with what the provider said', async (_, script, message) => {
  const chat = await server.chat({ scripts: [script] });
  const reader = chat.turn('hi');
  expect(await reader.end()).toMatchObject({ status: 'error', message: expect.stringContaining(message) });
  expect(chat.requests().length).toBe(1);
  // The session continues.
  expect(await chat.turn('again').end()).toMatchObject({ status: 'done', output: { content: 'ok' } });
});

test('a model that never works ends the turn in error within the time limit, with the text so far', async () => {
  const impatient = await startTestServer({ env: { EVERTURN_MODEL_RETRY_SECONDS: '2' } });
  try {
    const chat = await impatient.chat({
      scripts: Array.from({ length: 20 }, (): Script => (call) => {
        call.text('almost');
        call.end();
      }),
    });
    const reader = chat.turn('hi');
    expect(await reader.end()).toMatchObject({ status: 'error', message: expect.stringMatching(/in the middle/) });
    expect(folded(await reader.done)[1]).toMatchObject({ content: 'almost', finish_reason: 'error' });
    expect(chat.requests().length).toBeGreaterThan(1);
  } finally {
    await impatient.stop();
  }
});

test('the cost of failed attempts is counted', async () => {
  const usage = { prompt_tokens: 100, completion_tokens: 1, total_tokens: 101 };
  const chat = await server.chat({
    scripts: [
      (call) => {
        call.text('x').chunk({ choices: [], usage });
        call.end();
      },
      say('fine'),
    ],
  });
  expect(await chat.turn('hi').end()).toMatchObject({ metrics: { total_input_tokens: 110, total_output_tokens: 6 } });
});

test('each comment ends the silence of a slow model', async () => {
  const reset = vi.spyOn(SilenceTimer.prototype, 'reset');
  onTestFinished(() => reset.mockRestore());
  const model = held((call) => void call.raw(': thinking\n\n'), say('done thinking'));
  const chat = await server.chat({ scripts: [model.script] });
  const reader = chat.turn('hi');
  const call = await model.reached;
  for (let i = 0; i < 4; i++) {
    const resets = reset.mock.calls.length;
    call.raw(': thinking\n\n');
    await expect.poll(() => reset.mock.calls.length).toBeGreaterThan(resets);
  }
  model.release();
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'done thinking' } });
  expect(chat.requests().length).toBe(1);
});

test('a complete response counts even if its server keeps the connection open', async () => {
  const chat = await server.chat({ scripts: [(call) => void call.text('all of it').delta({}, 'stop')] });
  expect(await chat.turn('hi').end()).toMatchObject({ status: 'done', output: { content: 'all of it' } });
  expect(chat.requests().length).toBe(1);
});

test('the end of a turn quotes the beginning of an error that is an HTML page', async () => {
  const chat = await server.chat({ scripts: [(call) => call.fail(400, `<html>${'<p>no</p>'.repeat(100_000)}`)] });
  const end = await chat.turn('hi').end();
  expect(end).toMatchObject({ status: 'error', message: expect.stringContaining('<html><p>no</p>') });
  expect(JSON.stringify(end).length).toBeLessThan(5_000);
});

test('a message that calls more than 500 tools fails the turn, and none of them runs', async () => {
  const calls = (count: number) => use(...Array.from({ length: count }, () => ({ name: 'unknown' })));
  const chat = await server.chat({ scripts: [calls(100), say('there are no such tools'), calls(501)] });
  expect(await chat.turn('hi').end()).toMatchObject({ status: 'done', output: { content: 'there are no such tools' } });
  const reader = chat.turn('again');
  expect(await reader.end()).toMatchObject({
    status: 'error',
    message: expect.stringContaining('the model called more than 500 tools in one message'),
  });
  expect((await reader.done).filter(({ type }) => type === 'tool.response')).toEqual([]);
});
