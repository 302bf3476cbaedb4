import { afterAll, beforeAll, expect, test } from 'vitest';
import { openCatalog } from './support/archived.ts';
import { answer, type Plan } from './support/plan.ts';
import type { RecordedTurn } from './support/recorder.ts';
import { World } from './support/world.ts';

/** MCP servers that ask the user, and a webhook that is called for it, while the workers are killed. */

let world: World;
beforeAll(async () => {
  world = await World.start({ workers: 2, isNotified: true });
  for (const [agent, server] of Object.entries({ newer: 'test', older: 'desk' })) {
    const mcp_servers = [{ type: 'truefoundry-mcp-registry', name: server, require_approval_for_tools: [] }];
    for (const pause of ['end', 'wait']) {
      await world.putAgent(`${agent}-${pause}`, { model: { name: 'planned' }, mcp_servers, config: { pause } });
    }
  }
});
afterAll(() => world.checkAndStop());

/** `kill -9` of all workers. Their leases of deliveries end at once, instead of after half a minute. */
async function killWorkers(): Promise<void> {
  await world.fault(() => Promise.all(world.workers.map((one) => one.kill())));
  const catalog = openCatalog(world.folder);
  catalog.prepare('UPDATE delivery_lanes SET due_at = ?').run(new Date().toISOString());
  catalog.close();
  await world.up();
}

interface Asked {
  sessionId: string;
  plan: Plan;
  turn: RecordedTurn;
  /** The call of the tool that asks, and the answer to it. */
  call: string;
  item: Record<string, unknown>;
}

/** A turn whose tool has asked the user. */
async function asked(agent: string, args: Record<string, unknown> = {}): Promise<Asked> {
  const name = agent.startsWith('newer') ? 'ask' : 'ask_older';
  const plan = world.plan({ say: 'Let me ask.', tools: [{ name, args }] }, { say: 'I see.' });
  const sessionId = await world.session({ agent });
  const turn = await world.turn(sessionId, plan);
  await turn.until((frames) => frames.some(({ type }) => type === 'tool.response_required'));
  const call = `${plan.id}_0_0`;
  return { sessionId, plan, turn, call, item: answer(call, `word-of-${call}`) };
}

const END = { status: 'done', output: { content: 'I see.' } };

test('workers are killed while servers ask, while an answer is sent, and while a webhook is called', async () => {
  const { receiver } = world.webhook ?? expect.fail('it is notified');
  const told = Promise.withResolvers<void>();
  // It does not respond to the first message.
  receiver.next.push(() => told.resolve());
  const [ends, held, endsOlder, waits, waitsOlder] = await Promise.all([
    asked('newer-end'),
    asked('newer-end', { hold: 'answered' }),
    asked('older-end'),
    asked('newer-wait'),
    asked('older-wait'),
  ]);
  for (const { turn } of [ends, held, endsOlder]) {
    expect(await turn.done).toMatchObject({ status: 'done', required_actions: [{}] });
  }
  await told.promise;
  await receiver.stop();
  await killWorkers();

  const next = await Promise.all(
    [ends, held, endsOlder].map(({ sessionId, item }) => world.recorder.turn(sessionId, [item])),
  );
  for (const turn of [next[0], next[2]]) expect(await turn?.done).toMatchObject(END);
  // The server has the answer, and does not respond.
  await world.ledger.started(`/${held.call}`);
  const sent = [waits, waitsOlder].map(({ sessionId, item }) => world.recorder.respond(sessionId, item));
  await killWorkers();
  world.ledger.goOn('answered');
  await receiver.start();
  expect(await Promise.all(sent)).toEqual([200, 200]);
  for (const turn of [...next, waits.turn, waitsOlder.turn]) expect(await turn.done).toMatchObject(END);
  const all = [ends, held, endsOlder, waits, waitsOlder];
  const outcomes = await Promise.all(all.map(({ sessionId }) => world.outcomes(sessionId)));
  // The newer servers continue from their state. The older ones lose a call with the connection that it keeps open.
  expect(outcomes.flatMap((its) => Object.values(its))).toEqual([
    'succeeded',
    'unknown_outcome',
    'unknown_outcome',
    'succeeded',
    'unknown_outcome',
  ]);
});

test('the answer to an older server reaches the one of two workers that keeps its call open', async () => {
  const agents = ['older-end', 'older-wait', 'older-end', 'older-wait', 'older-end', 'older-wait'];
  const all = await Promise.all(agents.map((agent) => asked(agent)));
  const turns = await Promise.all(
    all.map(async ({ sessionId, turn, item }, i) => {
      if (i % 2 === 0) return world.recorder.turn(sessionId, [item]);
      expect(await world.recorder.respond(sessionId, item)).toBe(200);
      return turn;
    }),
  );
  for (const turn of turns) expect(await turn.done).toMatchObject(END);
  const outcomes = await Promise.all(all.map(({ sessionId }) => world.outcomes(sessionId)));
  expect(outcomes).toEqual(all.map(({ call }) => ({ [call]: 'succeeded' })));
});
