import { afterAll, beforeAll, expect, inject, onTestFinished, test } from 'vitest';
import { toUuid } from '../../src/api/agents-v2/session-ids.ts';
import { turnWorkflowId } from '../../src/core/temporal-names.ts';
import type { DelegationRow } from '../../src/features/delegation/delegation-rows.ts';
import type { EventReader } from '../support/api-client.ts';
import { delegate, DelegatingChats, type DelegatingAgent, type DelegatingChat } from '../support/delegating-chats.ts';
import { eventually } from '../support/eventually.ts';
import { held, say, textOf, type ModelCall } from '../support/scripted-model.ts';
import { TemporalClient } from '../support/temporal-client.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

/** Agents that give tasks to other agents, each of which works in a session of its own. */

let server: TestServer;
let chats: DelegatingChats;
let temporal: TemporalClient;
beforeAll(async () => {
  server = await startTestServer();
  chats = await DelegatingChats.open(server.database.url);
  temporal = await TemporalClient.connect({
    address: inject('temporalAddress'),
    namespace: inject('temporalNamespace'),
  });
});
afterAll(async () => {
  await temporal.close();
  await chats.catalog.close();
  await server.stop();
});

const childrenOf = ({ sessionId }: DelegatingChat) => chats.catalog.delegations.ofSession(sessionId);

/** The child of a session that has the task `agent`, once it runs. */
function childOf(chat: DelegatingChat, agent: string): Promise<DelegationRow> {
  return eventually(async () => {
    const child = (await childrenOf(chat)).find((one) => one.agent === agent);
    const row = child && (await chats.catalog.turns.get(child.child_turn_id));
    if (!child || row?.sequence !== 1) throw new Error(`there is no turn of ${agent}`);
    return child;
  });
}

const pathOf = ({ child_session_id: id }: DelegationRow) => `/v1/agents/sessions/${id}`;

async function stateOf({ child_turn_id: turnId, ...child }: DelegationRow): Promise<{ status: string }> {
  const path = `${pathOf({ ...child, child_turn_id: turnId })}/turns/${turnId}`;
  return (await server.api.get<{ data: { state: { status: string } } }>(path)).data.state;
}

/** Fails unless a turn has got a command. */
async function isForced(turnId: string): Promise<void> {
  const { events } = await temporal.client.workflow.getHandle(turnWorkflowId(turnId)).fetchHistory();
  expect(events?.some((event) => event.workflowExecutionSignaledEventAttributes)).toBe(true);
}

/** Records that the parent has got the end of a child, or that it has not. */
const mark = ({ child_session_id: id }: DelegationRow, told: 0 | 1) =>
  server.database.rows.updateTable('delegations').set({ told }).where('child_session_id', '=', id).execute();

/** The results of the calls of a turn. */
const results = ({ frames }: EventReader) =>
  frames.flatMap((frame) =>
    frame.type === 'tool.response' ? [`${frame.tool_call_id} ${frame.outcome}: ${frame.content}`] : [],
  );

/** A model that has begun to answer, and continues when it is released. */
const slow = (before: string, after: string) =>
  held(
    (call: ModelCall) => call.text(before),
    (call) => call.text(after).finish(),
  );

const paused = (reader: EventReader) =>
  reader.next((frame) => frame.type === 'turn.paused' && frame.reason === 'delegation');

test('another agent works on a task in a session of its own, and its answer is the result of the call', async () => {
  const chat = await chats.chat(server, {
    scripts: [delegate('research'), say('So it is blue.')],
    delegates: { research: { scripts: [say('The sky is blue.')] } },
  });
  const reader = chat.turn('which colour?');
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'So it is blue.' } });
  expect(results(reader)).toEqual(['call_research succeeded: The sky is blue.']);
  const [child] = await childrenOf(chat);
  if (!child) throw new Error('no session was created');
  expect(child).toMatchObject({ parent_turn_id: await reader.turnId(), tool_call_id: 'call_research', depth: 1 });
  const [request] = server.model.requestsTo(chat.model('/research'));
  expect(textOf(request?.messages.at(-1))).toBe('do research');
  expect(server.model.requestsTo(chat.model())[0]?.tools?.map((tool) => tool.function.name)).toContain('delegate');
  const session = await server.api.get<{ data: { created_by_subject: object } }>(
    `/v1/agents/draft-sessions/${child.child_session_id}`,
  );
  const parent = await server.api.get<{ data: { created_by_subject: object } }>(
    `/v1/agents/draft-sessions/${chat.sessionId}`,
  );
  expect(session.data.created_by_subject).toEqual(parent.data.created_by_subject);
  await eventually(async () => expect(await childrenOf(chat)).toMatchObject([{ told: 1 }]));
  // Lists follow within a moment.
  await eventually(async () => {
    const listed = await server.api.get(`/api/v2/sessions?parent_session_id=${toUuid(chat.sessionId)}`);
    expect(listed.items).toMatchObject([{ id: toUuid(child.child_session_id), status: 'completed' }]);
  });

  // A further turn of the child is its own.
  server.model.script(chat.model('/research'), say('And the sea.'));
  expect(await server.api.turn(child.child_session_id, 'more?').end()).toMatchObject({ status: 'done' });
  server.model.script(chat.model(), say('Bye.'));
  const next = chat.turn('bye');
  expect(await next.end()).toMatchObject({ output: { content: 'Bye.' } });
  expect(results(next)).toEqual([]);
});

test('two agents work in parallel, while the turn is paused and takes no place among the running ones', async () => {
  const [one, two] = [slow('One', ' is 1.'), slow('Two', ' is 2.')];
  const chat = await chats.chat(server, {
    scripts: [delegate('one', 'two'), say('Three.')],
    delegates: { one: { scripts: [one.script] }, two: { scripts: [two.script] } },
  });
  const reader = chat.turn('add');
  await Promise.all([one.reached, two.reached]);
  await paused(reader);
  const turnId = await reader.turnId();
  expect((await server.api.get(`${chat.path}/turns/${turnId}`)).data.state).toEqual({
    status: 'running',
    paused: ['delegation'],
  });
  await eventually(async () => expect(await chats.catalog.turns.get(turnId)).toMatchObject({ state: 'delegating' }));
  expect(await stateOf(await childOf(chat, 'one'))).toMatchObject({ status: 'running' });
  // Slots are for sessions of the Agents API v2.
  expect(await server.api.get('/api/v2/sessions/quota')).toMatchObject({ active: 0 });
  two.release();
  await reader.next((frame) => frame.type === 'tool.response');
  one.release();
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Three.' } });
  expect(results(reader)).toEqual(['call_two succeeded: Two is 2.', 'call_one succeeded: One is 1.']);
  expect(server.model.requestsTo(chat.model())).toHaveLength(2);
});

test('a client answers the tool calls of a delegate in the session of the delegate', async () => {
  const door = { name: 'open_door', input_schema: { type: 'object' } };
  const chat = await chats.chat(server, {
    scripts: [delegate('porter'), say('Done.')],
    delegates: {
      porter: {
        spec: { client_tools: [door] },
        scripts: [(call) => call.toolCall('open_door', {}, 'door').finish(), say('It is open.')],
      },
    },
  });
  const reader = chat.turn('open');
  const child = await childOf(chat, 'porter');
  await eventually(async () => expect(await stateOf(child)).toMatchObject({ paused: ['action'], waiting: ['door'] }));
  const input = [{ type: 'user.tool_response', thread_id: 'main', tool_call_id: 'door', content: 'opened' }];
  await server.api.send('POST', `${pathOf(child)}/actions`, { input });
  expect(await reader.end()).toMatchObject({ status: 'done' });
  expect(results(reader)).toEqual(['call_porter succeeded: It is open.']);
});

test('the model is told of a delegate that fails, that is cancelled, or that cannot start', async () => {
  const cancelled = slow('I have begun', ' and ended.');
  const chat = await chats.chat(server, {
    scripts: [delegate('fails', 'cancelled', 'ends'), say('Well.')],
    delegates: {
      fails: { scripts: [(call) => call.fail(400, 'no')] },
      cancelled: { scripts: [cancelled.script] },
      ends: { spec: { config: { pause: 'end' } } },
    },
  });
  const reader = chat.turn('go');
  await cancelled.reached;
  await server.api.send('POST', `${pathOf(await childOf(chat, 'cancelled'))}/cancel`, {});
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Well.' } });
  expect(results(reader).toSorted()).toEqual([
    'call_cancelled cancelled: The agent cancelled was stopped before it had answered.\nWhat it wrote last:\n\nI have begun',
    'call_ends failed: The task was not given to the agent: the agent ends requires pause: "wait"',
    expect.stringMatching(/^call_fails failed: The agent fails failed: .*no/),
  ]);
  expect((await childrenOf(chat)).map(({ agent }) => agent).toSorted()).toEqual(['cancelled', 'fails']);
});

test('agents are nested at most 16 levels deep', async () => {
  const nested = (levels: number): DelegatingAgent =>
    levels === 0
      ? {}
      : { scripts: [delegate('next'), say(`level ${levels}`)], delegates: { next: nested(levels - 1) } };
  const chat = await chats.chat(server, nested(17));
  const reader = chat.turn('down');
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'level 17' } });
  const depths = await server.database.rows
    .selectFrom('delegations')
    .select((eb) => eb.fn.max('depth').as('max'))
    .execute();
  expect(depths).toEqual([{ max: 16 }]);
  const [, last] = server.model.requestsTo(chat.model('/next'.repeat(16)));
  expect(textOf(last?.messages.at(-1))).toContain('agents can be nested 16 levels deep');
});

test('when two agents start at once, the one for which there is no turn is not waited for', async () => {
  const limited = await startTestServer({ env: { EVERTURN_TURNS_PER_SUBJECT: '2' } });
  onTestFinished(() => limited.stop());
  const own = await DelegatingChats.open(limited.database.url);
  onTestFinished(() => own.catalog.close());
  const work = slow('Mine', '.');
  const chat = await own.chat(limited, {
    scripts: [delegate('one', 'two'), say('Both.')],
    delegates: { one: { scripts: [work.script] }, two: { scripts: [work.script] } },
  });
  const reader = chat.turn('go');
  await reader.next((frame) => frame.type === 'tool.response');
  expect(results(reader)).toEqual([
    expect.stringMatching(/^call_\w+ failed: The task was not given to the agent: 2 of your turns run/),
  ]);
  expect(await own.catalog.delegations.ofSession(chat.sessionId)).toHaveLength(1);
  work.release();
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Both.' } });
});

test('cancelling a turn cancels its children and theirs', async () => {
  const leaf = slow('Leaf', '.');
  const chat = await chats.chat(server, {
    scripts: [delegate('middle')],
    delegates: { middle: { scripts: [delegate('leaf')], delegates: { leaf: { scripts: [leaf.script] } } } },
  });
  const reader = chat.turn('go');
  await leaf.reached;
  const middle = await childOf(chat, 'middle');
  const [below] = await chats.catalog.delegations.ofSession(middle.child_session_id);
  if (!below) throw new Error('there is no leaf');
  expect(below.depth).toBe(2);
  await paused(reader);
  await server.api.send('POST', `${chat.path}/cancel`, {});
  expect(await reader.end()).toMatchObject({ status: 'cancelled' });
  expect(results(reader)).toEqual([expect.stringMatching(/^call_middle unknown_outcome/)]);
  await eventually(async () => expect(await stateOf(below)).toMatchObject({ status: 'cancelled' }));
  expect(await stateOf(middle)).toMatchObject({ status: 'cancelled' });
  await eventually(async () =>
    expect(await chats.catalog.delegations.get(below.child_session_id)).toMatchObject({ told: 1 }),
  );
});

test('a session is deleted with its children and theirs; deleting a child answers its parent', async () => {
  const [first, leaf] = [slow('First', '.'), slow('Leaf', '.')];
  const chat = await chats.chat(server, {
    scripts: [delegate('first', 'second')],
    delegates: {
      first: { scripts: [first.script] },
      second: { scripts: [delegate('leaf')], delegates: { leaf: { scripts: [leaf.script] } } },
    },
  });
  const reader = chat.turn('go');
  await Promise.all([first.reached, leaf.reached]);
  await paused(reader);
  const child = await childOf(chat, 'second');
  const [below] = await chats.catalog.delegations.ofSession(child.child_session_id);
  if (!below) throw new Error('there is no leaf');
  await server.api.send('DELETE', `/v1/agents/draft-sessions/${(await childOf(chat, 'first')).child_session_id}`);
  await reader.next((frame) => frame.type === 'tool.response');
  expect(results(reader)).toEqual([
    'call_first cancelled: The session of the agent first was deleted before it had answered.',
  ]);
  await server.api.send('DELETE', `/v1/agents/draft-sessions/${chat.sessionId}`);
  for (const { child_session_id: id, child_turn_id: turnId } of [child, below]) {
    await eventually(async () => expect(await chats.catalog.sessions.get(id)).toBeUndefined());
    const turn = temporal.client.workflow.getHandle(turnWorkflowId(turnId));
    await eventually(async () => expect((await turn.describe()).status.name).toBe('TERMINATED'));
  }
});

test('a forced answer forces the children, and stops those that do not answer in time', async () => {
  const stuck = slow('I know that much', '.');
  const leaf = slow('Leaf', ' is done.');
  const chat = await chats.chat(server, {
    scripts: [delegate('stuck', 'quick'), say('Forced.')],
    delegates: {
      stuck: { scripts: [stuck.script] },
      quick: { scripts: [delegate('leaf'), say('Quick.')], delegates: { leaf: { scripts: [leaf.script] } } },
    },
  });
  const reader = chat.turn('go');
  await Promise.all([stuck.reached, leaf.reached]);
  await paused(reader);
  const { status } = await server.api.send('POST', `${chat.path}/force_answer`, {});
  expect(status).toBeLessThan(300);
  const child = await childOf(chat, 'quick');
  const [below] = await chats.catalog.delegations.ofSession(child.child_session_id);
  if (!below) throw new Error('there is no leaf');
  // The command has reached the child, and the child's child.
  for (const { child_turn_id: turnId } of [child, below]) await eventually(() => isForced(turnId));
  leaf.release();
  await reader.next((frame) => frame.type === 'tool.response');
  expect(results(reader)).toEqual(['call_quick succeeded: Quick.']);
  const requests = server.model.requestsTo(chat.model('/quick'));
  expect(requests.at(-1)).toMatchObject({ tool_choice: 'none' });
  expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Forced.' } });
  expect(results(reader)[1]).toMatch(/^call_stuck cancelled: .*\n\nI know that much$/s);
});

test('results that were not delivered are, by housekeeping, and once', async () => {
  const child = slow('Late', ' answer.');
  const chat = await chats.chat(server, {
    scripts: [delegate('child'), say('At last.')],
    delegates: { child: { scripts: [child.script] } },
  });
  const reader = chat.turn('go');
  await paused(reader);
  await child.reached;
  const delegation = await childOf(chat, 'child');
  // As if the worker that sees the end of the child had died.
  await mark(delegation, 1);
  child.release();
  await eventually(async () =>
    expect(await chats.catalog.turns.get(delegation.child_turn_id)).toMatchObject({ archived: 1 }),
  );
  expect(results(reader)).toEqual([]);
  await mark(delegation, 0);
  const turnId = await reader.turnId();
  await server.restart();
  const again = server.api.subscribe(chat.sessionId, turnId);
  expect(await again.end()).toMatchObject({ status: 'done', output: { content: 'At last.' } });
  expect(results(again)).toEqual(['call_child succeeded: Late answer.']);
  expect(await chats.catalog.delegations.get(delegation.child_session_id)).toMatchObject({ told: 1 });
});

test('a child whose parent has ended without it is cancelled by housekeeping', async () => {
  const [before, after] = [slow('Before', '.'), slow('After', '.')];
  const chat = await chats.chat(server, {
    scripts: [delegate('child')],
    delegates: { child: { scripts: [before.script, after.script] } },
  });
  const reader = chat.turn('go');
  await paused(reader);
  await before.reached;
  const delegation = await childOf(chat, 'child');
  // As if the worker that cancels the parent had died.
  await mark(delegation, 1);
  await server.api.send('POST', `${chat.path}/cancel`, {});
  await reader.end();
  const turnId = await reader.turnId();
  await eventually(async () => expect(await chats.catalog.turns.get(turnId)).toMatchObject({ archived: 1 }));
  expect(await stateOf(delegation)).toMatchObject({ status: 'running' });
  await mark(delegation, 0);
  await server.restart();
  await eventually(async () => expect(await stateOf(delegation)).toMatchObject({ status: 'cancelled' }));
  await eventually(async () =>
    expect(await chats.catalog.delegations.get(delegation.child_session_id)).toMatchObject({ told: 1 }),
  );
});

test('a turn that is terminated has one outcome for its call, and its child is cancelled', async () => {
  const child = slow('Working', '.');
  const chat = await chats.chat(server, {
    scripts: [delegate('child')],
    delegates: { child: { scripts: [child.script] } },
  });
  const reader = chat.turn('go');
  await paused(reader);
  await child.reached;
  await temporal.terminate(turnWorkflowId(await reader.turnId()));
  expect(await reader.end()).toMatchObject({ status: 'cancelled' });
  expect(results(reader)).toEqual([expect.stringMatching(/^call_child unknown_outcome/)]);
  const delegation = await childOf(chat, 'child');
  await eventually(async () => expect(await stateOf(delegation)).toMatchObject({ status: 'cancelled' }));
});
