import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createThere, resultThere, statusThere } from './support/agents-v2.ts';
import { SUBJECTS } from './support/subjects.ts';
import { World } from './support/world.ts';

/** Clients of the Agents API v2 while the processes around them are killed. All scenarios also have readers of it. */

const AGENT = 'both';
const TEXT = 'one two three four five six';
const [ANN] = SUBJECTS;

let it: World;
beforeAll(async () => {
  it = await World.start({ apis: 2 });
  // Its client's calls wait within a turn, as those of the agents of this API do.
  await it.putAgent(AGENT, {
    model: { name: 'planned' },
    mcp_servers: [{ type: 'truefoundry-mcp-registry', name: 'test', require_approval_for_tools: ['refund'] }],
    client_tools: [{ name: 'door', description: 'opens the door', input_schema: { type: 'object' } }],
    config: { pause: 'wait' },
  });
});
afterAll(() => it.checkAndStop());

const begin = async (...steps: Parameters<World['plan']>) => {
  const plan = it.plan(...steps);
  const { sessionId, turns } = await createThere(it.recorder, { agent: AGENT, plan, by: ANN });
  const [turn, ...others] = turns;
  if (!turn || others.length > 0) throw new Error(`${turns.length} turns`);
  return { plan, sessionId, turn };
};

const sessionsOf = async (): Promise<number> => (await it.recorder.as(ANN).list('/v1/agents/sessions')).length;

test('APIs are killed while they create sessions: a repetition with the same key completes the one session', async () => {
  const before = await sessionsOf();
  const delays = [0, 20, 60];
  for (const delay of delays) {
    const created = Promise.all([1, 2, 3].map(() => begin({ say: 'Hello.' })));
    await sleep(delay);
    await it.fault(() => Promise.all(it.apis.map((api) => api.kill())));
    await it.up();
    for (const { turn } of await created) expect(await turn.done).toMatchObject({ status: 'done' });
  }
  expect(await sessionsOf()).toBe(before + 3 * delays.length);
});

test('everything is killed in a model call: the session continues, and its reader has each event once', async () => {
  const { turn, sessionId } = await begin({ say: TEXT, hold: 3, tools: [{ name: 'sync' }] }, { say: 'Done it.' });
  await turn.words(3);
  await it.crash();
  await it.recover();
  expect(await turn.done).toMatchObject({ status: 'done', output: { content: 'Done it.' } });
  expect((await statusThere(it.recorder, sessionId, 'idle')).steps).toBe(2);
});

test('a worker and its API are killed between the result of a tool and the next step', async () => {
  const { turn, plan, sessionId } = await begin(
    { say: 'I pay.', tools: [{ name: 'pay', args: { hold: 'result' } }, { name: 'look' }] },
    { say: 'Paid.' },
  );
  await it.ledger.started(plan.steps[0]?.tools?.[0]?.id ?? '');
  const hasResult = turn.until((frames) => frames.filter(({ type }) => type === 'tool.response').length === 2);
  it.ledger.goOn('result');
  await hasResult;
  const [api] = it.apis;
  await it.fault(() => Promise.all([api?.kill(), ...it.workers.map((worker) => worker.kill())]));
  await it.up();
  expect(await turn.done).toMatchObject({ status: 'done', output: { content: 'Paid.' } });
  await statusThere(it.recorder, sessionId, 'idle');
});

test('everything of ours is killed while a client sends the results of its tools: each call has one', async () => {
  for (const delay of [0, 20]) {
    const { turn, plan, sessionId } = await begin(
      {
        say: 'Open both.',
        tools: [{ name: 'door', args: { n: 1 } }, { name: 'look' }, { name: 'door', args: { n: 2 } }],
      },
      { say: 'Open.' },
    );
    const { pending_tool_calls: calls } = await statusThere(it.recorder, sessionId, 'awaiting_tool_results');
    const [look] = plan.steps[0]?.tools?.filter(({ name }) => name === 'look') ?? [];
    await turn.until((frames) =>
      frames.some((frame) => frame.type === 'tool.response' && frame.tool_call_id === look?.id),
    );
    expect(calls?.map(({ args }) => args)).toEqual([{ n: 1 }, { n: 2 }]);
    // The second one twice, as a client does that has restarted.
    const sent = [...(calls ?? []), ...(calls ?? []).slice(1)].map((call) => resultThere(it.recorder, sessionId, call));
    await sleep(delay);
    await it.fault(() => Promise.all(it.processes.map((one) => one.kill())));
    await it.up();
    await Promise.all(sent);
    expect(await turn.done).toMatchObject({ status: 'done', output: { content: 'Open.' } });
    expect((await statusThere(it.recorder, sessionId, 'idle')).pending_tool_calls).toEqual([]);
  }
});
