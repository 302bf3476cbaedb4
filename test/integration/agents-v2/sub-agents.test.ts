import { afterAll, beforeAll, expect, test } from 'vitest';
import { AgentSession, agentNamed, kindsOf } from '../../support/agents-v2.ts';
import { eventually } from '../../support/eventually.ts';
import { held, say, use } from '../../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

/** Sub-agents of the Agents API v2: each of their tasks is a session of its own. */

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer();
});
afterAll(() => server.stop());

const lookup = { name: 'lookup', description: 'looks it up' };

/** A call that gives a task to a sub-agent. */
function delegate(agent: string, id: string) {
  return { name: 'delegate', id, args: { agent, task: `Do ${agent}.` } };
}

/** The id of the session of the only sub-agent. */
function childOf(parent: AgentSession): Promise<string> {
  return eventually(async () => {
    const { subagent_session_ids: ids } = await parent.status();
    expect(ids).toEqual([expect.stringMatching(/^[\da-f-]{36}$/)]);
    return ids[0] ?? '';
  });
}

test('a sub-agent works in a session of its own, whose client-side calls are answered there', async () => {
  const { api, model } = server;
  model.script('parent', use(delegate('child', 'd1')), say('It says 42.'));
  model.script('child', use({ name: 'lookup', id: 'l1' }), say('42'));
  const agent = agentNamed('parent', { subagents: [agentNamed('child', { tools: [lookup] })] });
  const parent = await AgentSession.create(api, { agent, messages: 'Ask.' });
  const id = await childOf(parent);
  const child = new AgentSession(api, id);
  await child.until('awaiting_tool_results');
  expect((await parent.status()).status).toBe('running');
  expect((await child.get()).request).toMatchObject({
    agent: { name: 'child' },
    parent_session_id: parent.id,
  });
  await child.post('tool_results', { kind: 'tool_result', tool_req: { tool_name: 'lookup', id: 'l1' }, result: 42 });
  expect((await child.settle()).status.status).toBe('completed');
  const { status, events } = await parent.settle();
  expect(status).toMatchObject({ status: 'completed', subagent_session_ids: [id] });
  expect(kindsOf(events).filter((kind) => kind.endsWith('_event') || kind === 'tool_result')).toEqual([
    'message_event',
    'policy_event',
    'tool_result',
    'policy_event',
    'answer_event',
  ]);
});

test('the cancellation of a session cancels its sub-agents', async () => {
  const { api, model } = server;
  const work = held(
    () => undefined,
    (call) => call.finish(),
  );
  model.script('boss', use(delegate('worker', 'd1')));
  model.script('worker', work.script);
  const agent = agentNamed('boss', { subagents: [agentNamed('worker')] });
  const parent = await AgentSession.create(api, { agent, messages: 'Work.' });
  await work.reached;
  const id = await childOf(parent);
  expect((await api.send('DELETE', parent.path)).status).toBe(204);
  expect((await parent.settle()).status.status).toBe('interrupted');
  expect((await new AgentSession(api, id).until('interrupted')).error).toBeNull();
  work.release();
});

test('two sub-agents with one name, and one that cannot run, are rejected at their place', async () => {
  const { api } = server;
  const twins = agentNamed('parent', { subagents: [agentNamed('child'), agentNamed('child')] });
  const broken = agentNamed('parent', {
    subagents: [agentNamed('child', { subagents: [agentNamed('deep', { answer_format: { type: 'nothing' } })] })],
  });
  for (const [agent, loc] of [
    [twins, ['body', 'agent', 'subagents', 1, 'name']],
    [broken, ['body', 'agent', 'subagents', 0, 'subagents', 0, 'answer_format']],
  ]) {
    const { status, body } = await api.send('POST', '/api/v2/sessions', { agent, messages: 'x' });
    expect([status, body.detail[0].loc]).toEqual([422, loc]);
  }
});
