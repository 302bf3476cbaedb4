import { afterAll, beforeAll, expect, test } from 'vitest';
import { folded } from '../support/api-client.ts';
import { TOKENS } from './support/plan.ts';
import { World } from './support/world.ts';

/** Row 9: providers that reject, stall, disconnect and send invalid data. */

const TEXT = 'one two three four five six';

let it: World;
beforeAll(async () => {
  it = await World.start({ env: { EVERTURN_MODEL_FIRST_CHUNK_SECONDS: '1', EVERTURN_MODEL_IDLE_SECONDS: '1' } });
});
afterAll(() => it.checkAndStop());

test.concurrent.each([
  ['rate limit', 'rate_limited'],
  ['time-out', 'timeout'],
  ['server error', 'overloaded'],
  ['overloaded', 'overloaded'],
  ['no answer', 'stalled'],
  ['headers, then silence', 'stalled'],
  ['broken connection', 'broken_stream'],
  ['broken connection behind the calls', 'broken_stream'],
  ['truncated JSON', 'broken_stream'],
  ['end without a finish', 'broken_stream'],
  ['empty body', 'broken_stream'],
  ['empty answer', 'empty_answer'],
  ['error in the stream', 'overloaded'],
  ['cost, then an error', 'overloaded'],
])('%s is %s: retried, and the text is right', async (fault, failure) => {
  const tools = ['look', 'pay', 'sync'].map((name) => ({ name }));
  const plan = it.plan({ say: TEXT, sayFirst: 'x', shuffles: true, faults: [fault], tools }, { say: 'And on.' });
  const turn = await it.turn(await it.session(), plan);
  expect(await turn.done).toMatchObject({ status: 'done', output: { content: 'And on.' } });
  expect(await it.failedAttempts(turn)).toEqual([failure]);
  expect(it.planned.attempts(plan, 0)).toBe(2);
});

test.concurrent('Retry-After is observed', async () => {
  const plan = it.plan({ say: TEXT, faults: ['rate limit'] });
  await (
    await it.turn(await it.session(), plan)
  ).done;
  const [first = 0, second = 0] = it.planned.askedAt(plan, 0);
  expect(second - first).toBeGreaterThanOrEqual(1_000);
});

test.concurrent('the cost of a failed attempt is counted', async () => {
  const turn = await it.turn(await it.session(), it.plan({ say: TEXT, faults: ['cost, then an error'] }));
  expect(await turn.done).toMatchObject({ metrics: { total_output_tokens: 2 * TOKENS.completion_tokens } });
});

test.concurrent.each([
  ['come back tomorrow', /come back tomorrow/],
  ['bad request', /that is no role/],
])('%s: the turn ends with the message of the provider, and the session continues', async (fault, message) => {
  const session = await it.session();
  const plan = it.plan({ say: TEXT, faults: [fault] });
  const turn = await it.turn(session, plan);
  expect(await turn.done).toMatchObject({ status: 'error', message: expect.stringMatching(message) });
  expect(it.planned.attempts(plan, 0)).toBe(1);
  const next = await it.turn(session, it.plan({ say: TEXT }));
  expect(await next.done).toMatchObject({ status: 'done', output: { content: TEXT } });
});

test.concurrent('a model that asks for a long wait is replaced by its fallback', async () => {
  const agent = 'with-fallback';
  await it.putAgent(agent, { model: { name: 'planned', fallbacks: ['planned-too'] } });
  const plan = it.plan({ say: TEXT, sayFirst: 'x', faults: ['come back tomorrow'] });
  const turn = await it.turn(await it.session({ agent }), plan);
  expect(await turn.done).toMatchObject({
    status: 'done',
    output: { content: TEXT, model: 'planned-too', attempts: [{ model: 'planned', failure: 'rate_limited' }] },
  });
  expect(it.planned.attempts(plan, 0)).toBe(2);
});

test.concurrent('a tool call with invalid arguments does not run; the model is told why', async () => {
  const plan = it.plan({ say: TEXT, faults: ['broken arguments'], tools: [{ name: 'pay' }] }, { say: 'Sorry.' });
  const turn = await it.turn(await it.session(), plan);
  expect(await turn.done).toMatchObject({ status: 'done', output: { content: 'Sorry.' } });
  expect(folded(turn.frames)).toContainEqual(
    expect.objectContaining({ type: 'tool.response', outcome: 'failed', content: expect.stringMatching(/JSON/) }),
  );
  expect(it.ledger.effects.filter(({ operation }) => operation.startsWith(turn.turnId))).toEqual([]);
});
