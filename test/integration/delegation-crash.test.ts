import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, inject, test } from 'vitest';
import { turnWorkflowId } from '../../src/core/temporal-names.ts';
import type { DelegationRow } from '../../src/features/delegation/delegation-rows.ts';
import { newId } from '../../src/engine/new-id.ts';
import type { Frame } from '../support/api-client.ts';
import { delegate, DelegatingChats, type DelegatingChat } from '../support/delegating-chats.ts';
import { eventually } from '../support/eventually.ts';
import { held, say, ScriptedModel } from '../support/scripted-model.ts';
import { ServerProcess } from '../support/server-process.ts';
import { TemporalClient } from '../support/temporal-client.ts';

/** `kill -9` of the server while agents work for others. Temporal and the models are outside of it. */

let dataDir: string;
let model: ScriptedModel;
let server: ServerProcess;
let chats: DelegatingChats;
let temporal: TemporalClient;
beforeAll(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), 'everturn-delegation-crash-'));
  model = await ScriptedModel.start();
  const namespace = inject('temporalNamespace');
  server = await ServerProcess.prepare(dataDir, {
    DATABASE_URL: `sqlite:${path.join(dataDir, 'catalog.db')}`,
    EVERTURN_TASK_QUEUE: newId('req'),
    OPENAI_API_KEY: 'x',
    OPENAI_BASE_URL: model.url,
    TEMPORAL_ADDRESS: inject('temporalAddress'),
    TEMPORAL_NAMESPACE: namespace,
  });
  await server.start();
  chats = await DelegatingChats.open(`sqlite:${path.join(dataDir, 'catalog.db')}`);
  temporal = await TemporalClient.connect({ address: inject('temporalAddress'), namespace });
});
afterAll(async () => {
  await server.stop();
  await temporal.close();
  await chats.catalog.close();
  await model.stop();
  await rm(dataDir, { recursive: true, force: true });
});
beforeEach(async () => {
  if (!server.isRunning) await server.start();
});

const open = (...args: [Parameters<DelegatingChats['chat']>[1]]) => chats.chat({ api: server.api, model }, ...args);
const childrenOf = ({ sessionId }: DelegatingChat) => chats.catalog.delegations.ofSession(sessionId);

async function stateOf({ child_session_id: id, child_turn_id: turnId }: DelegationRow): Promise<{ status: string }> {
  const { data } = await server.api.get(`/v1/agents/sessions/${id}/turns/${turnId}`);
  return data.state;
}

const results = (frames: Frame[]) =>
  frames.flatMap((frame) =>
    frame.type === 'tool.response' ? [`${frame.tool_call_id} ${frame.outcome}: ${frame.content}`] : [],
  );

/** A model whose first answer never ends. */
const stuck = () =>
  held(
    (call) => call.text('Half '),
    () => undefined,
  );

test('killed while another agent works: its message is repeated, and its answer arrives once', async () => {
  const first = stuck();
  const chat = await open({
    scripts: [delegate('child'), say('Done.')],
    delegates: { child: { scripts: [first.script, say('Half and half.')] } },
  });
  const reader = chat.turn('go');
  await first.reached;
  await reader.type('turn.paused');
  await server.kill();
  await reader.done.catch(() => undefined);
  await server.start();
  const rest = server.api.subscribe(chat.sessionId, await reader.turnId());
  expect(await rest.end()).toMatchObject({ status: 'done', output: { content: 'Done.' } });
  expect(results(rest.frames)).toEqual(['call_child succeeded: Half and half.']);
  expect(await childrenOf(chat)).toHaveLength(1);
});

test('killed while sessions of agents are created: each call has one, and one answer', async () => {
  const names = ['a', 'b', 'c', 'd', 'e'];
  // Attempts whose answers were lost repeat them.
  model.otherwise = say('Mine.');
  const chat = await open({
    scripts: [delegate(...names), say('All.')],
    delegates: Object.fromEntries(names.map((name) => [name, {}])),
  });
  const reader = chat.turn('go');
  // The moment at which some exist and others do not, in their sessions or their turns.
  while ((await childrenOf(chat)).length < 2) await new Promise(setImmediate);
  await server.kill();
  await reader.done.catch(() => undefined);
  const before = await childrenOf(chat);
  await server.start();
  const rest = server.api.subscribe(chat.sessionId, await reader.turnId());
  expect(await rest.end()).toMatchObject({ status: 'done', output: { content: 'All.' } });
  expect(results(rest.frames).toSorted()).toEqual(names.map((name) => `call_${name} succeeded: Mine.`));
  const after = await childrenOf(chat);
  expect(after.map(({ agent }) => agent).toSorted()).toEqual(names);
  for (const child of before) expect(after.map((one) => one.child_turn_id)).toContain(child.child_turn_id);
  for (const { child_session_id: id } of after) expect(await chats.catalog.turns.newestId(id)).toBeDefined();
});

test('terminated while no worker runs: the child is cancelled once one does', async () => {
  const first = stuck();
  const chat = await open({
    scripts: [delegate('child')],
    delegates: { child: { scripts: [first.script, stuck().script] } },
  });
  const reader = chat.turn('go');
  await first.reached;
  await reader.type('turn.paused');
  await server.kill();
  await temporal.terminate(turnWorkflowId(await reader.turnId()));
  await server.start();
  const [child] = await childrenOf(chat);
  if (!child) throw new Error('there is no child');
  await eventually(async () => expect(await stateOf(child)).toMatchObject({ status: 'cancelled' }));
  const rest = server.api.subscribe(chat.sessionId, await reader.turnId());
  expect(await rest.end()).toMatchObject({ status: 'cancelled' });
  expect(results(rest.frames)).toEqual([expect.stringMatching(/^call_child unknown_outcome/)]);
});
