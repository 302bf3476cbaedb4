import { afterAll, beforeAll, expect, test } from 'vitest';
import type { AgentSpec } from '../../../src/spec/agent-spec.ts';
import { newId } from '../../../src/engine/new-id.ts';
import type { Frame } from '../../support/api-client.ts';
import { startCodeServer } from '../../support/code-server.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { say, use } from '../../support/scripted-model.ts';
import { onTestServer, type Chat, type TestServer } from '../../support/test-server.ts';

/** Rules on what agents may do in code: which calls are asked about, what is shown of them, and how rules are made. */

let server: TestServer;
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);
beforeAll(async () => {
  server = await startCodeServer(
    {},
    {
      mcp: {
        tools: [
          { name: 'look', annotations: { readOnlyHint: true }, handler: () => 'seen' },
          { name: 'wipe', annotations: { destructiveHint: true }, handler: () => 'wiped' },
        ],
      },
    },
  );
});
afterAll(() => server.stop());

type Actions = NonNullable<AgentSpec['code_actions']>;

const withRules = (permissions: Actions['permissions'], more: Partial<AgentSpec> = {}) =>
  server.chat({ spec: { code_actions: { permissions }, ...more } });

const write = (path: string, id = newId('call')) => use({ name: 'write_file', args: { path, content: 'x' }, id });

/** A turn in which the model makes these calls, one a message. */
async function turn(chat: Chat, ...calls: ReturnType<typeof use>[]): Promise<Frame[]> {
  chat.script(...calls, say('done'));
  return chat.turn('go').done;
}

/** A turn that ends with the question about these calls. */
async function ask(chat: Chat, call: ReturnType<typeof use>): Promise<Frame[]> {
  chat.script(call);
  return chat.turn('go').done;
}

const outcomesIn = (events: Frame[]) => events.flatMap((one) => (one.type === 'tool.response' ? [one.outcome] : []));

function referencesIn(events: Frame[]) {
  return events.flatMap((one) =>
    one.type === 'tool.approval_required'
      ? one.tool_calls.map((reference) => ({ thread_id: one.thread_id, ...reference }))
      : [],
  );
}

function answer(events: Frame[], approval: object): object[] {
  return referencesIn(events).map(({ thread_id, id }) => ({
    type: 'user.tool_approval',
    thread_id,
    tool_call_id: id,
    approval,
  }));
}

const rulesOf = async (path: string) => (await server.api.get(`${path}/permissions`)).data;

/** Status and code of a refused turn. */
async function refusal(chat: Chat, input: object[]): Promise<[number, string | undefined, string | undefined]> {
  const { status, body } = await server.api.send('POST', `${chat.path}/turns`, { input, stream: false });
  return [status, body.error?.code, body.error?.param];
}

test.concurrent('each action is shown on its approval, with the rule that would decide it', async () => {
  const chat = await server.chat({ spec: { code_actions: {}, ...onTestServer } });
  const calls = use(
    { name: 'ipython', args: { code: 'print(1)' } },
    { name: 'write_file', args: { path: '/workspace/a', content: 'x' } },
    { name: 'wipe', args: {} },
  );
  const events = await turn(chat, calls);
  const actions = referencesIn(events).map(({ action }) => action);
  const common = { command: null, parent: null, expires_at: null, hash: expect.stringMatching(/^[0-9a-f]{64}$/) };
  expect(actions).toEqual([
    { ...common, type: 'code', display: 'print(1)', tool: null, path: null, suggested_rule: { action: 'code' } },
    {
      ...common,
      type: 'file_write',
      display: '/workspace/a',
      tool: null,
      path: '/workspace/a',
      suggested_rule: { action: 'file_write', path: 'a' },
    },
    {
      ...common,
      type: 'tool',
      display: 'test/wipe {}',
      tool: { server: 'test', name: 'wipe' },
      path: null,
      suggested_rule: { action: 'tool', tool: 'test/wipe' },
    },
  ]);
  const done = events.at(-1);
  expect(done).toMatchObject({ state: { required_actions: [{ tool_calls: [{ action: actions[0] }, {}, {}] }] } });
});

test.concurrent('calls of an agent that does not act in code have no action', async () => {
  const chat = await server.chat({ spec: onTestServer });
  const references = referencesIn(await turn(chat, use({ name: 'wipe', args: {} })));
  expect(references).toHaveLength(1);
  expect(references[0]).not.toHaveProperty('action');
});

test.concurrent('a rule of the agent allows the files that it names, and no others', async () => {
  const chat = await withRules([{ effect: 'allow', action: 'file_write', path: 'src/**' }]);
  expect(outcomesIn(await turn(chat, write('src/a')))).toEqual(['succeeded']);
  for (const path of ['other/a', '../src/a', '/etc/a']) {
    const asked = await turn(await withRules([{ effect: 'allow', action: 'file_write', path: 'src/**' }]), write(path));
    expect(referencesIn(asked), path).toHaveLength(1);
  }
});

test.concurrent('a link that leads away from what a rule allows is not followed', async () => {
  const permissions = [
    { effect: 'allow' as const, action: 'file_write' as const, path: 'src/**' },
    { effect: 'ask' as const, action: 'file_read' as const, path: '**/.env' },
  ];
  const chat = await server.chat({ spec: { code_actions: { approvals: { code: 'allow' }, permissions } } });
  const code = `import os
os.makedirs('src/in'); os.makedirs('other')
os.symlink('../other', 'src/out'); os.symlink('in', 'src/link')
open('.env', 'w').write('secret'); os.symlink('.env', 'harmless')`;
  const read = use({ name: 'read_file', args: { path: 'harmless' } });
  const events = await turn(
    chat,
    use({ name: 'ipython', args: { code } }),
    write('src/out/a'),
    write('src/link/a'),
    read,
  );
  const [ran, away, inside, secret] = events.filter((one) => one.type === 'tool.response');
  expect([ran?.outcome, inside?.outcome]).toEqual(['succeeded', 'succeeded']);
  expect(away).toMatchObject({ outcome: 'failed', content: expect.stringContaining('by a link to "other/a"') });
  expect(secret).toMatchObject({ outcome: 'failed', content: expect.stringContaining('by a link to ".env"') });
});

test.concurrent('a rule of the agent that denies holds against one of the session that allows', async () => {
  const chat = await withRules([{ effect: 'deny', action: 'file_write', path: 'secret/*' }]);
  await server.api.send('POST', `${chat.path}/permissions`, { effect: 'allow', action: 'file_write', path: '**' });
  expect(outcomesIn(await turn(chat, write('a'), write('secret/a')))).toEqual(['succeeded', 'failed']);
});

test.concurrent('a denial by approvals is lifted by rules of the agent alone', async () => {
  const chat = await server.chat({
    spec: {
      code_actions: {
        approvals: { file_write: 'deny' },
        permissions: [{ effect: 'allow', action: 'file_write', path: 'out/*' }],
      },
    },
  });
  await server.api.send('POST', `${chat.path}/permissions`, { effect: 'allow', action: 'file_write', path: '**' });
  expect(outcomesIn(await turn(chat, write('out/a'), write('a')))).toEqual(['succeeded', 'failed']);
});

test.concurrent('a rule makes the decision of a policy stricter, and no milder', async () => {
  const policy = (decision: 'allow' | 'ask') => ({ match: { tool: 'write_file' }, decision });
  const rules = [
    { effect: 'allow' as const, action: 'file_write' as const, path: 'a' },
    { effect: 'deny' as const, action: 'file_write' as const, path: 'b' },
  ];
  const allowing = await withRules(rules, { config: { decision_policies: [policy('allow')] } });
  expect(outcomesIn(await turn(allowing, write('a'), write('b'), write('c')))).toEqual([
    'succeeded',
    'failed',
    'succeeded',
  ]);
  const asking = await withRules(rules, { config: { decision_policies: [policy('ask')] } });
  expect(referencesIn(await turn(asking, write('a')))).toHaveLength(1);
});

test.concurrent('tools of MCP servers are asked about if approvals say so, unless a rule allows them', async () => {
  const asksForTools = { approvals: { tool: 'ask' as const } };
  const chat = await server.chat({ spec: { code_actions: asksForTools, ...onTestServer } });
  const asked = await turn(chat, use({ name: 'look', args: {} }));
  expect(referencesIn(asked)).toMatchObject([{ action: { type: 'tool' } }]);
  const permissions = [{ effect: 'allow' as const, action: 'tool' as const, tool: 'test/*' }];
  const ruled = await server.chat({ spec: { code_actions: { ...asksForTools, permissions }, ...onTestServer } });
  expect(outcomesIn(await turn(ruled, use({ name: 'look', args: {} }), use({ name: 'wipe', args: {} })))).toEqual([
    'succeeded',
    'succeeded',
  ]);
});

test.concurrent('a decision that is remembered holds in its session, or in all sessions with the agent', async () => {
  const chat = await server.chat({ spec: { code_actions: {} } });
  const other = async () => {
    const sessionId = await server.api.createSession(chat.agent);
    return { ...chat, sessionId, path: `/v1/agents/sessions/${sessionId}`, turn: turnOf(sessionId) };
  };
  const turnOf =
    (sessionId: string): Chat['turn'] =>
    (input, more, headers) =>
      server.api.turn(sessionId, input, more, headers);
  // Both calls are of one turn: the rule counts for what follows the answer.
  const asked = await ask(chat, write('a'));
  chat.script(write('a'), say('done'));
  const remembered = await chat.turn(answer(asked, { status: 'allow', remember: { scope: 'session' } })).done;
  expect(outcomesIn(remembered)).toEqual(['succeeded', 'succeeded']);
  expect(await rulesOf(chat.path)).toMatchObject([
    { scope: 'session', effect: 'allow', action: 'file_write', path: 'a', created_by: { subject_id: 'local' } },
  ]);
  const second = await other();
  const elsewhere = await ask(second, write('a'));
  const always = { status: 'allow', remember: { scope: 'always', rule: { action: 'file_write', path: '*' } } };
  second.script(say('done'));
  expect(outcomesIn(await second.turn(answer(elsewhere, always)).done)).toEqual(['succeeded']);
  expect(outcomesIn(await turn(await other(), write('b')))).toEqual(['succeeded']);
  const [rule, ...more] = await rulesOf(`/v1/agents/${chat.agent}`);
  expect(rule).toMatchObject({ scope: 'always', effect: 'allow', path: '*' });
  expect(more).toEqual([]);
  await server.api.send('DELETE', `/v1/agents/${chat.agent}/permissions/${rule.id}`);
  expect(referencesIn(await ask(await other(), write('b')))).toHaveLength(1);
});

test.concurrent('a denial is remembered as one, for as long as it says', async () => {
  const chat = await server.chat({ spec: { code_actions: {} } });
  const asked = await ask(chat, write('a'));
  const deny = { status: 'deny', reason: 'no', remember: { scope: 'session', expires_in_seconds: 3_600 } };
  chat.script(write('a'), say('done'));
  expect(outcomesIn(await chat.turn(answer(asked, deny)).done)).toEqual(['denied', 'failed']);
  const [rule] = await rulesOf(chat.path);
  expect(Date.parse(rule.expires_at) - Date.parse(rule.created_at)).toBe(3_600_000);
});

test.concurrent('a rule that does not match the call is refused, and nothing is applied', async () => {
  const chat = await server.chat({ spec: { code_actions: {} } });
  const asked = await ask(chat, write('a'));
  const input = (remember: object) => answer(asked, { status: 'allow', remember });
  const param = 'input.0.approval.remember';
  const rule = (path: string, action = 'file_write') => ({ scope: 'session', rule: { action, path } });
  expect(await refusal(chat, input(rule('b')))).toEqual([422, 'invalid_rule', param]);
  expect(await refusal(chat, input(rule('a', 'file_read')))).toEqual([422, 'invalid_rule', param]);
  expect(await refusal(chat, input(rule('./a')))).toEqual([422, 'invalid_rule', param]);
  expect(await refusal(chat, input({ scope: 'cell' }))).toEqual([422, 'invalid_rule', param]);
  expect(await refusal(chat, input({ scope: 'ever' }))).toEqual([400, 'invalid_request', `${param}.scope`]);
  expect(await rulesOf(chat.path)).toEqual([]);
  chat.script(say('done'));
  expect(outcomesIn(await chat.turn(answer(asked, { status: 'allow' })).done)).toEqual(['succeeded']);
});

test.concurrent('an answer that is refused makes no rule', async () => {
  const chat = await server.chat({ spec: { code_actions: {} } });
  const asked = await turn(
    chat,
    use(
      { name: 'write_file', args: { path: 'a', content: '' } },
      { name: 'write_file', args: { path: 'b', content: '' } },
    ),
  );
  const [first = {}] = answer(asked, { status: 'allow', remember: { scope: 'session' } });
  expect(await refusal(chat, [first])).toEqual([422, 'calls_unanswered', undefined]);
  expect(await rulesOf(chat.path)).toEqual([]);
});

test.concurrent('no rule is made where a policy says who decides, or of a call of an agent that does not act in code', async () => {
  const approvers = { subjects: ['local'] };
  const policy = { match: { tool: 'write_file' }, decision: 'ask' as const, approvers };
  const named = await withRules([], { config: { pause: 'wait', decision_policies: [policy] } });
  named.script(write('a'));
  const reader = named.turn('go');
  const asked = [await reader.type('tool.approval_required')];
  const input = answer(asked, { status: 'allow', remember: { scope: 'session' } });
  const { status, body } = await server.api.send('POST', `${named.path}/actions`, { input });
  expect([status, body.error?.code]).toEqual([422, 'remember_not_allowed']);
  await server.api.send('POST', `${named.path}/cancel`, {});
  await reader.done;

  const plain = await server.chat({ spec: onTestServer });
  const wipe = await turn(plain, use({ name: 'wipe', args: {} }));
  const remember = answer(wipe, { status: 'allow', remember: { scope: 'session' } });
  expect(await refusal(plain, remember)).toEqual([422, 'remember_not_allowed', 'input.0.approval.remember']);
});

test.concurrent('a running turn is answered with a rule as well', async () => {
  const chat = await withRules([], { config: { pause: 'wait' } });
  chat.script(write('a'), write('a'), say('done'));
  const reader = chat.turn('go');
  const asked = [await reader.type('tool.approval_required')];
  const input = answer(asked, { status: 'allow', remember: { scope: 'session' } });
  expect(await server.api.send('POST', `${chat.path}/actions`, { input })).toMatchObject({ status: 200 });
  const events = await reader.done;
  expect(outcomesIn(events)).toEqual(['succeeded', 'succeeded']);
  expect(referencesIn(events)).toHaveLength(1);
});

test.concurrent('rules are added, found again, listed and deleted', async () => {
  const chat = await server.chat({ spec: { code_actions: {} } });
  const path = `${chat.path}/permissions`;
  const rule = { effect: 'allow', action: 'shell', command: 'git status *' };
  const post = (body: object, key?: string) =>
    server.api.send('POST', path, body, key === undefined ? {} : { 'idempotency-key': key });
  const created = await post(rule, 'k1');
  expect(created.status).toBe(201);
  expect(created.body.data).toMatchObject({ ...rule, scope: 'session', id: expect.stringMatching(/^rule_/) });
  expect(await post(rule, 'k1')).toMatchObject({ status: 201, body: created.body });
  expect(await post(rule)).toMatchObject({ status: 200, body: created.body });
  expect((await post({ ...rule, effect: 'deny' }, 'k1')).status).toBe(422);
  expect(await rulesOf(chat.path)).toEqual([created.body.data]);
  const one = `${path}/${created.body.data.id}`;
  for (const status of [204, 204]) {
    expect((await server.api.send('DELETE', one, undefined, { 'idempotency-key': 'k2' })).status).toBe(status);
  }
  for (const gone of [one, `${path}/%00`]) expect((await server.api.send('DELETE', gone)).status).toBe(404);
  expect(await rulesOf(chat.path)).toEqual([]);
});

test.concurrent('a rule that is not valid, or counts for nothing, is refused', async () => {
  const chat = await server.chat({ spec: { code_actions: {} } });
  const plain = await server.chat();
  const post = async (path: string, body: object) => {
    const { status, body: answered } = await server.api.send('POST', `${path}/permissions`, body);
    return [status, answered.error?.code];
  };
  const rule = { effect: 'allow', action: 'code' };
  expect(await post(chat.path, { ...rule, path: 'a' })).toEqual([400, 'invalid_request']);
  expect(await post(chat.path, { effect: 'allow', action: 'shell' })).toEqual([400, 'invalid_request']);
  expect(await post(chat.path, { ...rule, expires_at: '2020-01-01T00:00:00.000Z' })).toEqual([422, 'invalid_rule']);
  expect(await post(chat.path, { ...rule, action: 'file_read', path: '../a' })).toEqual([422, 'invalid_rule']);
  expect(await post(plain.path, rule)).toEqual([422, 'invalid_rule']);
  expect(await post(`/v1/agents/${plain.agent}`, rule)).toEqual([422, 'invalid_rule']);
  expect(await post(`/v1/agents/nobody`, rule)).toEqual([404, 'agent_not_found']);
});

test.concurrent('a denial ends the turn if the agent says so, and the next message is answered', async () => {
  const chat = await server.chat({ spec: { code_actions: { on_deny: 'end' } } });
  const asked = await ask(chat, (call) =>
    call.text('I will write it.').toolCall('write_file', { path: 'a', content: 'x' }).finish(),
  );
  const events = await chat.turn(answer(asked, { status: 'deny', reason: 'no' })).done;
  expect(outcomesIn(events)).toEqual(['denied']);
  const end = { status: 'done', output: { content: 'I will write it.' }, ended_by: 'denial', required_actions: [] };
  expect(events.at(-1)).toMatchObject({ state: end });
  expect(chat.requests()).toHaveLength(1);
  chat.script(say('hello'));
  expect((await chat.turn('again').done).at(-1)).toMatchObject({ state: { output: { content: 'hello' } } });
  expect(JSON.stringify(chat.requests().at(-1)?.messages)).toContain('The user denied this tool call. Reason: no');
});

test.concurrent('what a person allows of code may be edited, but not around a rule', async () => {
  const permissions = [{ effect: 'deny' as const, action: 'file_write' as const, path: 'secret/*' }];
  const chat = await withRules(permissions);
  const asked = await ask(
    chat,
    use({ name: 'ipython', args: { code: 'print(1)' } }, { name: 'write_file', args: { path: 'a', content: 'x' } }),
  );
  const [cell = {}, file = {}] = answer(asked, {});
  const edit = (item: object, edited: object) => ({ ...item, approval: { status: 'allow', arguments: edited } });
  const code = edit(cell, { code: 'print(2)' });
  expect(await refusal(chat, [code, edit(file, { path: 'secret/a', content: 'x' })])).toEqual([
    422,
    'edit_not_allowed',
    'input.1.approval.arguments',
  ]);
  chat.script(say('done'));
  const events = await chat.turn([code, edit(file, { path: 'b', content: 'x' })]).done;
  expect(events.filter((one) => one.type === 'tool.response')).toEqual(
    expect.arrayContaining([
      expect.objectContaining({ content: '2', arguments: { code: 'print(2)' } }),
      expect.objectContaining({ content: 'Wrote 1 bytes to b', arguments: { path: 'b', content: 'x' } }),
    ]),
  );
});
