import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Run, RunStreamEvent } from '../../../src/api/runs/wire/run.ts';
import { inShort, RunAgent, RunStream } from '../../support/runs.ts';
import { held, say, use, type ModelCall, type Script } from '../../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

/** Streams of runs and what their connections have to do with them: the acceptance cases by their numbers in the contract. */

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({
    env: { EVERTURN_STREAMS_PER_SUBJECT: '4', EVERTURN_MODEL_RETRY_SECONDS: '1' },
    mcp: {
      tools: [{ name: 'note', annotations: { readOnlyHint: true }, handler: ({ text }) => `noted ${String(text)}` }],
    },
  });
});
afterAll(() => server.stop());

const LAB = { toolkits: [{ type: 'mcp', server: 'test' }] };
const agent = (scripts: Script[], params: object = LAB): RunAgent => new RunAgent(server, scripts, params);
const note = (id: string, text = 'x') => ({ name: 'note', id, args: { text } });

/** The texts of the partials that a client holds of its last message. */
function textOf(events: RunStreamEvent[]): string {
  const partials = events.filter((event) => event.event === 'partial');
  const from = partials.findLastIndex(({ reset }) => reset);
  const parts = partials.slice(Math.max(from, 0)).map(({ delta }) => delta?.part);
  return parts.map((part) => (part?.type === 'text' ? part.text : '')).join('');
}

test('33, 34: a stream has partials, items and the response, with rising numbers', async () => {
  const one = agent([
    (call) => call.text('I note ').text('it.').toolCall('note', { text: 'x' }, 'c1').finish(),
    say('Done now.'),
  ]);
  const stream = one.stream('Go');
  const last = await stream.end();
  const run = await server.api.get<Run>(`/v1/runs/${(await stream.headers).get('x-run-id')}`);
  expect(stream.items).toEqual(run.output);
  expect(last).toMatchObject({ event: 'response', ...run });
  expect(inShort(run.output)).toEqual(['model c1', 'c1 completed', 'model']);
  const numbers = stream.events.map(({ sequence_number: number }) => number);
  expect(numbers).toEqual([...new Set(numbers)].toSorted((a, b) => a - b));
  const kinds = stream.events.map(({ event }) => event).filter((kind, i, all) => kind !== all[i - 1]);
  expect(kinds).toEqual(['partial', 'item', 'partial', 'item', 'response']);
});

test('36: a stream that is cut after any event continues with the same items', async () => {
  const one = agent([use(note('c1')), say('Done and over.')]);
  const whole = one.stream('Go');
  await whole.end();
  const path = `/v1/runs/${(await whole.headers).get('x-run-id')}/stream`;
  for (const { sequence_number: cut } of whole.events) {
    const known = whole.events.filter((event) => event.sequence_number <= cut && event.event === 'item');
    const rest = RunStream.open(server.api, `${path}?after_sequence_number=${cut}`);
    await rest.done;
    expect([...known, ...rest.events.filter(({ event }) => event === 'item')], `cut at ${cut}`).toEqual(
      whole.events.filter(({ event }) => event === 'item'),
    );
  }
});

test('42: a key names one run', async () => {
  const one = agent([say('Still here.')], {});
  const headers = { 'idempotency-key': one.name };
  const [a, b] = await Promise.all([1, 2].map(() => server.api.send<Run>('POST', '/v1/runs', one.body('Go'), headers)));
  expect(a?.body).toEqual(b?.body);
  expect((await server.api.send<Run>('POST', '/v1/runs', one.body('Go'), headers)).body).toEqual(a?.body);
  const other = await server.api.send('POST', '/v1/runs', one.body('Stop'), headers);
  expect([other.status, other.body.error.code]).toEqual([422, 'idempotency_key_reused']);
  expect(one.requests).toHaveLength(1);
});

test('16: the stream of a run that reaches its limit of model calls ends with the error', async () => {
  const stream = agent([use(note('c1')), use(note('c2'))], { ...LAB, max_turns: 2 }).stream('Go');
  const last = await stream.end();
  expect(last).toMatchObject({ event: 'error', status: 'failed', error: { type: 'max_turns_exceeded' } });
  expect(inShort(stream.items)).toEqual(['model c1', 'c1 completed', 'model c2', 'c2 completed']);
  expect(last).toMatchObject({ output: stream.items });
});

test('36: a reader that gets one event per connection reaches the end', async () => {
  const model = held(
    (call) => call.text('one ').text('two '),
    (call) => call.text('three').finish(),
  );
  const { id } = await agent([model.script]).run('Go', { wait_seconds: 0 });
  await model.reached;
  const events: RunStreamEvent[] = [];
  while (events.at(-1)?.event !== 'response') {
    // Beside a model that still writes, each connection gets a partial; the number of those is the machine's.
    if (events.length === 3) {
      model.release();
      expect(await server.api.get(`/v1/runs/${id}?wait_seconds=30`)).toMatchObject({ status: 'completed' });
    }
    const cursor = String(events.at(-1)?.sequence_number ?? 0);
    const stream = RunStream.open(server.api, `/v1/runs/${id}/stream`, { headers: { 'last-event-id': cursor } });
    const event = await stream.next(({ sequence_number: number }) => number > Number(cursor));
    stream.close();
    events.push(event);
    expect(events.length).toBeLessThan(10);
  }
  const partials = events.filter((event) => event.event === 'partial');
  expect(partials.slice(1).every(({ reset }) => reset)).toBe(true);
  const run = await server.api.get<Run>(`/v1/runs/${id}`);
  expect(events.flatMap((event) => (event.event === 'item' ? [event.item] : []))).toEqual(run.output);
});

test('37: a message whose provider breaks starts over, and what is complete at its final failure is an item', async () => {
  const broken = (before: (call: ModelCall) => void) => held(before, (call) => call.cut());
  const first = broken((call) => call.text('I beg'));
  const stream = agent([first.script, say('Whole answer.')]).stream('Go');
  await stream.next(({ event }) => event === 'partial');
  first.release();
  expect(await stream.end()).toMatchObject({ event: 'response', status: 'completed', turns: 1 });
  expect([textOf(stream.events), inShort(stream.items)]).toEqual(['Whole answer.', ['model']]);
  const failing: Script = async (call) => {
    call.text('I look').toolCall('note', { text: 'a' }, 'c1');
    await call.delta({ tool_calls: [{ index: 1, id: 'c2', function: { name: 'note', arguments: '{"te' } }] }).sent();
    call.end();
  };
  const failed = agent([failing, failing, failing]).stream('Go');
  const last = await failed.end();
  expect(last).toMatchObject({ event: 'error', error: { type: 'language_model_error' }, output: failed.items });
  expect(inShort(failed.items)).toEqual(['model c1', 'c1 cancelled']);
});

test('requests that wait for their run count as streams', async () => {
  const models = Array.from({ length: 4 }, () =>
    held(
      () => undefined,
      (call) => call.text('Yes.').finish(),
    ),
  );
  const waiting = models.map((model) => agent([model.script]).run('Go'));
  await Promise.all(models.map((model) => model.reached));
  const one = agent([say('Now.')]);
  expect((await one.refusal('Go')).slice(0, 2)).toEqual([429, 'too_many_streams']);
  const { id } = await one.run('Go', { wait_seconds: 0 });
  for (const model of models) model.release();
  expect((await Promise.all(waiting)).map(({ status }) => status)).toEqual(models.map(() => 'completed'));
  expect(await server.api.get(`/v1/runs/${id}?wait_seconds=30`)).toMatchObject({ status: 'completed' });
});
