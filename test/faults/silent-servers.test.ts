import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { folded } from '../support/api-client.ts';
import type { TestMcpServer } from '../support/mcp-server.ts';
import { World } from './support/world.ts';
import { eventually } from '../support/eventually.ts';

/** Row 14: MCP servers that accept the connection and send nothing. */

/** Longer than a worker may be silent, shorter than a server may. */
const SHORT_MS = 6_000;
/** Longer than a server may be silent, plus the time in which a busy machine sends the request. */
const LONG_MS = process.env['LONG'] ? 60_000 : 30_000;

/** The first request of either protocol. */
const CONNECT = ['server/discover', 'initialize'];
const LIST = ['tools/list'];

function silence(server: TestMcpServer | undefined, methods: string[], ms: number): void {
  const until = sleep(ms);
  for (const method of methods) server?.faults.set(method, { until });
}

test("a short silence is waited for; after a long one the server's tools are unavailable, and the model is told", async () => {
  const it = await World.start({ servers: ['slow-connect', 'slow-list', 'mute-connect', 'mute-list'] });
  onTestFinished(() => it.stop());
  const plan = it.plan({ say: 'I look.', tools: [{ name: 'slow-connect__look' }] }, { say: 'Seen.' });
  const sessionId = await it.session();
  await it.fault(() => silence(it.servers.get('slow-connect'), CONNECT, SHORT_MS));
  await it.fault(() => silence(it.servers.get('slow-list'), LIST, SHORT_MS));
  await it.fault(() => silence(it.servers.get('mute-connect'), CONNECT, LONG_MS));
  await it.fault(() => silence(it.servers.get('mute-list'), LIST, LONG_MS));
  const turn = await it.turn(sessionId, plan);
  expect(await turn.done).toMatchObject({ status: 'done', output: { content: 'Seen.' } });
  // The worker was not considered dead because its servers were silent.
  expect(await it.failedAttempts(turn)).toEqual([]);
  const connected = folded(turn.frames).find((event) => 'mcp_servers' in event);
  expect(connected).toMatchObject({ mcp_servers: [{ name: 'test' }, { name: 'slow-connect' }, { name: 'slow-list' }] });
  const [system] = it.requestsFor(plan)[0]?.messages ?? [];
  expect(system?.content).toMatch(/"mute-connect" are currently unavailable.*\n> .*no MCP handshake within 10 s/);
  expect(system?.content).toMatch(/"mute-list" are currently unavailable.*\n> .*did not answer within 10 s/);
  expect(system?.content).not.toMatch(/slow|test/);

  // A server is not asked again for half a minute after a failure.
  if (process.env['LONG']) await eventually(() => expectAllOffered(it, sessionId));
  await it.check();
});

async function expectAllOffered(it: World, sessionId: string): Promise<void> {
  const plan = it.plan({ say: 'Hm.' });
  await (
    await it.turn(sessionId, plan)
  ).done;
  const offered = it
    .requestsFor(plan)
    .at(-1)
    ?.tools?.map((tool) => tool.function.name);
  expect(offered).toEqual(expect.arrayContaining([...it.servers.keys()].map((name) => `${name}__look`)));
}
