import { afterAll, beforeAll, expect, test } from 'vitest';
import { approval } from './support/plan.ts';
import { World } from './support/world.ts';

/** Row 7: the same decision many times, and contradictory decisions. */

let world: World;
beforeAll(async () => {
  world = await World.start({ apis: 2 });
});
afterAll(() => world.checkAndStop());

/** A session whose turn waits for the approval of a refund. Returns the session and the call. */
async function waiting(): Promise<{ sessionId: string; call: string; effects: () => number; turnId: string }> {
  const sessionId = await world.session();
  const plan = world.plan({ say: 'I will pay it back.', tools: [{ name: 'refund' }] }, { say: 'That is that.' });
  const turn = await world.turn(sessionId, plan);
  expect(await turn.done).toMatchObject({ status: 'done', output: null });
  const call = `${plan.id}_0_0`;
  const effects = (): number => world.ledger.effects.filter(({ operation }) => operation.endsWith(`/${call}`)).length;
  return { sessionId, call, effects, turnId: turn.turnId };
}

const TOLD = { outcome: 'refused', status: 422 };

test('ten concurrent approvals of one call: one is accepted, the others are rejected, the tool runs once', async () => {
  const { sessionId, call, effects } = await waiting();
  const sent = await Promise.all(
    Array.from({ length: 10 }, () => world.recorder.send(sessionId, [approval('allow', call)])),
  );
  const [accepted, ...more] = sent.filter(({ outcome }) => outcome === 'accepted');
  expect(more).toEqual([]);
  const turn = world.recorder.follow(sessionId, accepted?.turnId ?? '');
  expect(await turn.done).toMatchObject({ status: 'done', output: { content: 'That is that.' } });
  for (const one of sent) if (one !== accepted) expect(one).toMatchObject(TOLD);
  expect(effects()).toBe(1);
});

test('an approval that is repeated under its own key is the same turn', async () => {
  const { sessionId, call, effects } = await waiting();
  const send = () =>
    world.recorder
      .as(world.recorder.ownerOf(sessionId))
      .send(
        'POST',
        `/v1/agents/sessions/${sessionId}/turns`,
        { input: [approval('allow', call)], stream: false },
        { 'idempotency-key': call },
      );
  const at = performance.now();
  const answers = await Promise.all(Array.from({ length: 5 }, send));
  const ids = new Set(answers.map(({ status, body }) => [status, body.data.id].join(' ')));
  expect(ids.size).toBe(1);
  const [turnId = ''] = answers.map(({ body }) => body.data.id as string);
  world.recorder.inputs.push({ sessionId, input: [approval('allow', call)], outcome: 'accepted', turnId, at });
  await world.recorder.follow(sessionId, turnId).done;
  expect(effects()).toBe(1);
});

test.each([
  ['allow', 'deny', 1],
  ['deny', 'allow', 0],
] as const)('%s, then %s: the first one stands', async (first, second, effects) => {
  const it = await waiting();
  const turn = await world.decide(it.sessionId, first, it.call);
  expect(await world.recorder.send(it.sessionId, [approval(second, it.call)])).toMatchObject(TOLD);
  await turn.done;
  expect(await world.recorder.send(it.sessionId, [approval(second, it.call)])).toMatchObject(TOLD);
  expect(it.effects()).toBe(effects);
  const events = await world.recorder.api.list<{ type: string; outcome?: string }>(
    `/v1/agents/sessions/${it.sessionId}/turns/${turn.turnId}/events`,
  );
  expect(events.find(({ type }) => type === 'tool.response')?.outcome).toBe(first === 'allow' ? 'succeeded' : 'denied');
});

test('concurrent approval and denial by two callers: one is refused, since the call is already decided', async () => {
  const { sessionId, call, effects } = await waiting();
  const [allowed, denied] = await Promise.all([
    world.recorder.send(sessionId, [approval('allow', call)]),
    world.recorder.send(sessionId, [approval('deny', call)]),
  ]);
  expect([allowed.outcome, denied.outcome].toSorted()).toEqual(['accepted', 'refused']);
  const turnId = allowed.turnId ?? denied.turnId ?? '';
  await world.recorder.follow(sessionId, turnId).done;
  expect(effects()).toBe(allowed.outcome === 'accepted' ? 1 : 0);
});

test('after a cancel, pending calls are still decided once', async () => {
  const { sessionId, call, effects } = await waiting();
  const cancelled = await world.recorder.api.send('POST', `/v1/agents/sessions/${sessionId}/cancel`, {});
  expect(cancelled.status).toBeLessThan(300);
  const turn = await world.decide(sessionId, 'allow', call);
  expect(await turn.done).toMatchObject({ status: 'done' });
  expect(effects()).toBe(1);
});

test('no decision is accepted in a closed session', async () => {
  const { sessionId, call, effects } = await waiting();
  await world.recorder.api.send('POST', `/v1/agents/sessions/${sessionId}/cancel`, { close: true });
  expect(await world.recorder.send(sessionId, [approval('allow', call)])).toMatchObject({ outcome: 'refused' });
  expect(effects()).toBe(0);
});

test('a call that no turn asked to approve cannot be approved', async () => {
  const { sessionId, effects } = await waiting();
  expect(await world.recorder.send(sessionId, [approval('allow', 'call_made_up')])).toMatchObject(TOLD);
  expect(effects()).toBe(0);
});
