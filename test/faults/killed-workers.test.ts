import { afterAll, beforeAll, expect, test } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { Exposition } from '../support/prometheus.ts';
import type { ServerProcess } from '../support/server-process.ts';
import { TOKENS, type Plan } from './support/plan.ts';
import type { RecordedTurn } from './support/recorder.ts';
import { FIGURES_FILE } from './support/figures.ts';
import { World } from './support/world.ts';

/** Row 1: `kill -9` of a worker during the model's response, and after it. */

const TEXT = 'one two three four five six seven eight nine ten';

let it: World;
let running: ServerProcess;
let spare: ServerProcess;
beforeAll(async () => {
  it = await World.start({ workers: 2 });
  const [one, two] = it.workers;
  if (!one || !two) throw new Error('there are two');
  [running, spare] = [one, two];
  await spare.kill();
});
afterAll(() => it.checkAndStop());

const ROUNDS = process.env['LONG'] ? 10 : 1;

/** A turn whose model has sent this many words, and pauses. */
async function heldBehind(words: number): Promise<{ plan: Plan; turn: RecordedTurn }> {
  const tools = ['pay', 'look', 'sync'].map((name) => ({ name }));
  const plan = it.plan({ say: TEXT, hold: words, shuffles: true, tools }, { say: 'And on.' });
  const turn = await it.turn(await it.session(), plan);
  await turn.words(words);
  return { plan, turn };
}

/** The message was repeated once, and the turn completed. */
async function expectGoneOn({ plan, turn }: { plan: Plan; turn: RecordedTurn }, moment: number): Promise<number> {
  const resumed = await it.resumed(turn, moment);
  expect(await turn.done).toMatchObject({ status: 'done', output: { content: 'And on.' } });
  expect([it.planned.attempts(plan, 0), it.planned.attempts(plan, 1)]).toEqual([2, 1]);
  return resumed;
}

test('killed after the first, a middle and the last word: the message is repeated by another worker within 5 s', async () => {
  const resumed: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const held = await Promise.all([1, 5, 10].map(heldBehind));
    await spare.start();
    const moment = await it.fault(() => running.kill());
    for (const one of held) resumed.push(await expectGoneOn(one, moment));
    // Temporal's attempt number identifies the later one of two attempts that the worker did not report.
    const metrics = new Exposition(await (await fetch(`${spare.api.url}/metrics`)).text());
    const lost = metrics.value('everturn_retries_total', { activity: 'callModel', reason: 'lost' });
    expect(lost).toBeGreaterThanOrEqual(held.length);
    // Bystanders may be affected, too, and a turn of the noisy subject.
    expect(lost).toBeLessThanOrEqual(held.length + it.bystanders.length + 1);
    [running, spare] = [spare, running];
  }
  // A busy machine may take longer than this figure: it is checked where it is measured.
  if (process.env[FIGURES_FILE] === undefined) return;
  const median = resumed.toSorted((a, b) => a - b)[Math.floor(resumed.length / 2)];
  expect(median, `${resumed.join(' ')} ms`).toBeLessThan(5_000);
});

test('killed while answers are repaired, and while a fallback answers: the calls are repeated, and counted once', async () => {
  const schema = { type: 'object', required: ['one', 'two'] };
  const format = { type: 'json_schema', json_schema: { name: 'numbers', schema } };
  await it.putAgent('structured', { model: { name: 'planned' }, response_format: format });
  await it.putAgent('with-fallback', { model: { name: 'planned', fallbacks: ['planned-too'] } });
  const good = '{"one": 1, "two": 2}';
  const repaired = it.plan({ say: 'One and two.' }, { say: good, hold: 2 });
  const rejected = it.plan({ say: 'No.' }, { say: '{"one": 1}', hold: 1 }, { say: 'Never.' });
  // The first model fails at once, and its fallback pauses.
  const replaced = it.plan({ say: good, faults: ['come back tomorrow'], hold: [0, 2] });
  const start = async (agent: string, plan: Plan) => it.turn(await it.session({ agent }), plan);
  const turns = await Promise.all([
    start('structured', repaired),
    start('structured', rejected),
    start('with-fallback', replaced),
  ]);
  await Promise.all(turns.map((turn) => turn.says('{"one":')));
  await spare.start();
  await it.fault(() => running.kill());
  const lost = { unreported_attempts: 1 };
  const [first, second, third] = await Promise.all(turns.map(({ done }) => done));
  expect(first).toMatchObject({
    status: 'done',
    output_json: { one: 1, two: 2 },
    metrics: { model_calls: 2, ...lost },
  });
  expect(second).toMatchObject({
    status: 'error',
    message: expect.stringMatching(/not valid JSON/),
    metrics: { model_calls: 3, ...lost },
  });
  expect(third).toMatchObject({
    status: 'done',
    output: { content: good, model: 'planned-too', attempts: [{ model: 'planned', failure: 'rate_limited' }] },
    metrics: { model_calls: 1, total_output_tokens: TOKENS.completion_tokens, ...lost },
  });
  expect([0, 1].map((step) => it.planned.attempts(repaired, step))).toEqual([1, 2]);
  expect([0, 1, 2].map((step) => it.planned.attempts(rejected, step))).toEqual([1, 2, 1]);
  expect(it.requestsFor(replaced).map(({ model }) => model)).toEqual(['planned', 'planned-too', 'planned-too']);
  [running, spare] = [spare, running];
});

test("killed between the model's end and the activity's: the message is repeated", async () => {
  for (let round = 0; round < ROUNDS; round++) {
    const held = await heldBehind(9);
    // The worker receives the whole response, and cannot report it to Temporal.
    it.workersLine.down();
    it.planned.goOn(held.plan);
    await held.turn.words(10);
    const moment = await it.fault(() => running.kill());
    it.workersLine.up();
    await spare.start();
    await expectGoneOn(held, moment);
    [running, spare] = [spare, running];
  }
});

/** A worker that waits for early results, however busy the machine is. */
const PATIENT = { NODE_OPTIONS: `--import=${new URL('support/patient-steps.ts', import.meta.url).href}` };

test('killed with the results of read-only tools: the message and its tools are repeated, and its attempts are counted', async () => {
  for (let round = 0; round < ROUNDS; round++) {
    await spare.start(PATIENT);
    await it.fault(() => running.kill());
    [running, spare] = [spare, running];
    const look = { name: 'look' };
    const plan = it.plan(
      { say: 'Look.', tools: [look] },
      { say: TEXT, hold: 9, tools: [look, look] },
      { say: 'And on.' },
    );
    const turn = await it.turn(await it.session(), plan);
    await turn.says('one two three four five six seven eight nine');
    // The worker has the message, its results and the begin of the next one, and cannot reach Temporal.
    it.workersLine.down();
    it.planned.goOn(plan);
    await eventually(() => expect(it.planned.attempts(plan, 2)).toBe(1));
    await it.fault(() => running.kill());
    it.workersLine.up();
    await spare.start();
    expect(await turn.done).toMatchObject({
      status: 'done',
      output: { content: 'And on.' },
      // The model call that began ahead of its step is no attempt of the turn.
      metrics: { model_calls: 3, tool_calls: 3, unreported_attempts: 1 },
    });
    expect([0, 1, 2].map((step) => it.planned.attempts(plan, step))).toEqual([1, 2, 2]);
    [running, spare] = [spare, running];
  }
});
