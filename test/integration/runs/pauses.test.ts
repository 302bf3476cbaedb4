import { inputRequired } from '@modelcontextprotocol/server';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Run } from '../../../src/api/runs/wire/run.ts';
import { eventually } from '../../support/eventually.ts';
import { inShort, resumeRefusal, resumeRun, RunAgent, RunStream, textOfRun } from '../../support/runs.ts';
import { held, say, use } from '../../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

/** Pauses of runs: section 6 of the contract, and its acceptance cases by their numbers. */

let server: TestServer;
const ran: unknown[] = [];
beforeAll(async () => {
  server = await startTestServer({
    mcp: {
      tools: [
        { name: 'note', annotations: { readOnlyHint: true }, handler: ({ text }) => `noted ${String(text)}` },
        {
          name: 'ask',
          handler: (_, { inputResponses }) => {
            const question = { message: 'Sure?', requestedSchema: { type: 'object' as const, properties: {} } };
            const answer = inputResponses?.['sure'];
            return answer
              ? JSON.stringify(answer)
              : inputRequired({ inputRequests: { sure: inputRequired.elicit(question) } });
          },
        },
        ...['wipe', 'drop', 'burn'].map((name) => ({
          name,
          annotations: { destructiveHint: true },
          handler: ({ what }: Record<string, unknown>) => {
            ran.push(what);
            return `${name}: done`;
          },
        })),
      ],
    },
  });
});
afterAll(() => server.stop());

const lookup = { name: 'lookup', description: 'looks up', parameters: { type: 'object' } };
const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

const agent = (scripts: ConstructorParameters<typeof RunAgent>[1], params: object = {}): RunAgent =>
  new RunAgent(server, scripts, { tools: [lookup], ...params });
const look = (id: string, q = 'x') => ({ name: 'lookup', id, args: { q } });
const result = (id: string, content: unknown, more: object = {}) => ({ tool_call_id: id, content, ...more });

test('26: a run waits for a tool of its client, and continues with the result', async () => {
  const one = agent([use(look('c1', 'milk')), say('Found it.')]);
  const paused = await one.run('Find milk');
  expect(inShort(paused.output)).toEqual(['model c1']);
  expect(paused).toMatchObject({
    status: 'requires_action',
    required_action: {
      turn: 1,
      approvals: [],
      tool_calls: [
        {
          tool_call_id: 'c1',
          tool_name: 'lookup',
          args: { q: 'milk' },
          operation_id: `${paused.id}/c1`,
          thread_id: 'main',
        },
      ],
    },
  });
  const waiting = () => server.api.list('/v1/runs?status=requires_action');
  await eventually(async () => expect(await waiting()).toMatchObject([{ id: paused.id }]));
  expect(await resumeRun(server, paused, {})).toEqual(paused);
  const parts = [
    { type: 'text', text: 'two bottles' },
    { type: 'image', mime_type: 'image/png', data: PIXEL },
  ];
  const run = await resumeRun(server, paused, { tool_results: [result('c1', parts)] });
  expect([run.status, textOfRun(run)]).toEqual(['completed', 'Found it.']);
  expect(inShort(run.output)).toEqual(['model c1', 'c1 completed', 'model']);
  expect(run.output[1]).toMatchObject({ output: [{ text: expect.stringContaining('two bottles') }, parts[1]] });
  expect(JSON.stringify(one.requests[1])).toContain('two bottles');
});

test('27: tools of the server run before the pause, and answers may come one by one', async () => {
  const one = agent([use(look('c1'), { name: 'note', id: 'c2', args: { text: 'y' } }, look('c3')), say('Done.')], {
    toolkits: [{ type: 'mcp', server: 'test' }],
  });
  const stream = one.stream('Go');
  const paused = await stream.end();
  if (paused.event !== 'response') throw new Error('not paused');
  expect(paused.required_action?.tool_calls.map(({ tool_call_id: id }) => id)).toEqual(['c1', 'c3']);
  const body = { tool_results: [result('c1', 'one')], stream: true };
  const path = `/v1/runs/${paused.id}`;
  const first = RunStream.open(server.api, `${path}/resume`, { body });
  expect(await first.end()).toMatchObject({
    status: 'requires_action',
    required_action: { tool_calls: [{ tool_call_id: 'c3' }] },
  });
  expect(inShort(first.items)).toEqual(['c1 completed', 'c2 completed']);
  const idle = RunStream.open(server.api, `${path}/resume`, { body: { stream: true } });
  expect([await idle.end(), idle.items]).toEqual([await first.end(), []]);
  const headers = { 'idempotency-key': 'k27' };
  const last = { tool_results: [result('c3', '')], stream: true };
  const second = RunStream.open(server.api, `${path}/resume`, { body: last, headers });
  const end = await second.end();
  expect([end, ...inShort(second.items)]).toMatchObject([{ status: 'completed' }, 'c3 completed', 'model']);
  const again = RunStream.open(server.api, `${path}/resume`, { body: last, headers });
  expect([await again.end(), again.items]).toEqual([end, second.items]);
  const whole = RunStream.open(server.api, `${path}/stream`);
  expect([await whole.end(), [...stream.items, ...first.items, ...second.items]]).toEqual([end, whole.items]);
  expect(one.requests[1]?.messages.slice(-3).map(({ content }) => content)).toEqual(['one', 'noted y', '']);
});

test('28: an answer is given once', async () => {
  const one = agent([use(look('c1'), look('c2'))]);
  const paused = await one.run('Go');
  const large = 'large '.repeat(30_000);
  const given = { tool_results: [result('c1', large)] };
  const both = { tool_results: [result('c2', 'two'), result('c9', 'nine')] };
  expect(await resumeRefusal(server, paused, both)).toEqual([422, 'call_not_pending', 'tool_results[1].tool_call_id']);
  expect((await resumeRun(server, paused, given)).required_action?.tool_calls).toMatchObject([{ tool_call_id: 'c2' }]);
  expect(await resumeRefusal(server, paused, { results: [] })).toEqual([400, 'invalid_request', undefined]);
  const before = await resumeRun(server, paused, {});
  expect(await resumeRun(server, paused, given)).toEqual(before);
  for (const other of [result('c1', 'other'), result('c1', large, { is_error: true })]) {
    expect(await resumeRefusal(server, paused, { tool_results: [other] })).toEqual([
      409,
      'call_already_answered',
      'tool_results[0].tool_call_id',
    ]);
  }
  const approval = { tool_call_id: 'c2', status: 'allow' };
  expect((await resumeRefusal(server, paused, { approvals: [approval] }))[1]).toBe('call_not_pending');
  expect(await resumeRefusal(server, paused, { tool_results: [{ tool_call_id: 'c2' }] })).toEqual([
    400,
    'invalid_request',
    'tool_results[0].content',
  ]);
  const gate = held(
    () => undefined,
    (call) => call.text('Done.').finish(),
  );
  one.script(gate.script);
  expect((await resumeRun(server, paused, { tool_results: [result('c2', 'two')], wait_seconds: 0 })).status).toBe(
    'running',
  );
  await gate.reached;
  expect((await resumeRun(server, paused, { ...given, wait_seconds: 0 })).status).toBe('running');
  expect((await resumeRefusal(server, paused, { tool_results: [result('c2', 'three')] }))[1]).toBe(
    'call_already_answered',
  );
  gate.release();
  expect((await resumeRun(server, paused, {})).status).toBe('completed');
  expect((await resumeRefusal(server, paused, { tool_results: [result('c2', 'two')] })).slice(0, 2)).toEqual([
    409,
    'run_ended',
  ]);
});

test('29: a tool that reports an error does not end the run; one that threw does, unless the model is to be told', async () => {
  const script = () => [use(look('c1'), look('c2')), say('Never mind.')];
  const answers = (c2: object) => ({ tool_results: [result('c1', 'it broke', { is_error: true }), c2] });
  const threw = answers({ tool_call_id: 'c2', error: { message: 'secret' } });
  const reported = await agent(script()).run('Go');
  const run = await resumeRun(server, reported, answers(result('c2', 'fine')));
  expect([run.status, ...inShort(run.output)]).toEqual([
    'completed',
    'model c1 c2',
    'c1 failed',
    'c2 completed',
    'model',
  ]);
  const failing = agent(script());
  const failed = await resumeRun(server, await failing.run('Go'), threw);
  expect(failed).toMatchObject({
    status: 'failed',
    error: {
      type: 'tool_execution_error',
      cause: { type: 'client', message: 'secret', tool_call_id: 'c2', tool_name: 'lookup' },
    },
  });
  expect(inShort(failed.output)).toEqual(['model c1 c2', 'c1 failed', 'c2 failed']);
  expect([failing.requests.length, JSON.stringify(failed.output).includes('secret')]).toEqual([1, false]);
  const telling = agent(script(), { on_tool_failure: 'tell' });
  const told = await resumeRun(server, await telling.run('Go'), threw);
  expect([told.status, textOfRun(told)]).toEqual(['completed', 'Never mind.']);
  expect(JSON.stringify(telling.requests)).not.toContain('secret');
});

test('29: an error ends the run although other calls wait, which are cancelled', async () => {
  const paused = await agent([use(look('c1'), look('c2'))]).run('Go');
  const failed = await resumeRun(server, paused, { tool_results: [{ tool_call_id: 'c2', error: { message: 'no' } }] });
  expect([failed.status, ...inShort(failed.output)]).toEqual(['failed', 'model c1 c2', 'c1 cancelled', 'c2 failed']);
});

test('31: a call that needs an approval runs once it is allowed, also with other arguments', async () => {
  const wipe = (id: string) => ({ name: 'wipe', id, args: { what: id } });
  const one = agent([use(wipe('no'), wipe('yes'), wipe('edited')), say('Done.')]);
  await server.api.putAgent(one.name, {
    model: { name: one.name },
    mcp_servers: [{ type: 'truefoundry-mcp-registry', name: 'test', require_approval_for_tools: ['@destructive'] }],
  });
  const { body: paused } = await server.api.send<Run>('POST', `/v1/agents/${one.name}/runs`, {
    input: [{ type: 'message', role: 'user', content: 'Go' }],
  });
  expect(paused.required_action?.approvals).toMatchObject([
    { tool_call_id: 'no', tool_name: 'wipe', args: { what: 'no' }, thread_id: 'main', action: { kind: 'approval' } },
    { tool_call_id: 'yes' },
    { tool_call_id: 'edited' },
  ]);
  const allow = (id: string, more = {}) => ({ tool_call_id: id, status: 'allow', ...more });
  expect(await resumeRefusal(server, paused, { approvals: [allow('yes', { remember: { scope: 'always' } })] })).toEqual(
    [400, 'invalid_request', 'approvals[0].remember.scope'],
  );
  const body = {
    approvals: [
      { tool_call_id: 'no', status: 'deny', reason: 'too risky' },
      allow('yes'),
      allow('edited', { arguments: { what: 'less' } }),
    ],
  };
  const run = await resumeRun(server, paused, body);
  expect([run.status, ...inShort(run.output)]).toEqual([
    'completed',
    'model no yes edited',
    'no failed',
    'yes completed',
    'edited completed',
    'model',
  ]);
  expect(run.output.slice(1, 4)).toMatchObject([{ outcome: 'denied' }, {}, { input: { what: 'less' } }]);
  expect(JSON.stringify(one.requests[1])).toContain('too risky');
  expect(ran.map(String).toSorted((a, b) => a.localeCompare(b))).toEqual(['less', 'yes']);
  // The inbox is for sessions.
  expect(await server.api.list('/v1/agents/actions?status=decided')).toEqual([]);
});

test('a remembered decision applies to the later calls of its tool in the run', async () => {
  const call = (name: string, id: string) => ({ name, id, args: { what: id } });
  const one = agent(
    [
      use(call('wipe', 'w1'), call('drop', 'd1')),
      use(call('wipe', 'w2'), call('drop', 'd2'), call('burn', 'b1')),
      use(call('wipe', 'w3')),
      say('Done.'),
    ],
    { toolkits: [{ type: 'mcp', server: 'test', require_approval_for_tools: ['@destructive'] }] },
  );
  const paused = await one.run('Go');
  const first = [
    { tool_call_id: 'w1', status: 'allow', remember: { scope: 'session' } },
    { tool_call_id: 'd1', status: 'deny', reason: 'keep it', remember: true },
  ];
  const again = await resumeRun(server, paused, { approvals: first });
  expect(again.required_action?.approvals).toMatchObject([{ tool_call_id: 'b1' }]);
  expect(await resumeRun(server, paused, { approvals: first })).toEqual(again);
  const other = { approvals: [{ tool_call_id: 'w1', status: 'allow' }] };
  expect((await resumeRefusal(server, paused, other))[1]).toBe('call_already_answered');
  const run = await resumeRun(server, paused, { approvals: [{ tool_call_id: 'b1', status: 'allow' }] });
  expect([run.status, ...inShort(run.output)]).toEqual([
    'completed',
    'model w1 d1',
    'w1 completed',
    'd1 failed',
    'model w2 d2 b1',
    'w2 completed',
    'd2 failed',
    'b1 completed',
    'model w3',
    'w3 completed',
    'model',
  ]);
  expect(run.output[5]).toMatchObject({ outcome: 'denied', output: [{ text: expect.stringContaining('keep it') }] });
  expect(ran.filter((what) => /^[wdb]\d/.test(String(what)))).toEqual(['w1', 'w2', 'b1', 'w3']);
});

test('32: a run that is not answered in time fails', async () => {
  const paused = await agent([use(look('c1'))], { action_timeout_seconds: 1 })
    .stream('Go')
    .end();
  if (paused.event !== 'response') throw new Error('not paused');
  const asked = Date.parse(paused.output[0]?.created_at ?? '');
  expect(Date.parse(paused.required_action?.expires_at ?? '') - asked).toBeLessThan(60_000);
  const path = `/v1/runs/${paused.id}`;
  const stream = RunStream.open(server.api, `${path}/stream?after_sequence_number=${paused.sequence_number}`);
  expect(await stream.end()).toMatchObject({ error: { type: 'action_expired', name: 'AgentTimeoutError' } });
  const run = await server.api.get<Run>(path);
  expect([run.status, ...inShort(run.output)]).toEqual(['failed', 'model c1', 'c1 cancelled']);
});

test('40: a run that is cancelled while it waits', async () => {
  const one = agent([use(look('c1')), say('Fine.')]);
  const paused = await one.run('Go');
  await server.api.send<Run>('POST', `/v1/runs/${paused.id}/cancel`, {});
  // The response waits for a second, which may be too short for a slow machine.
  const current = () => server.api.get<Run>(`/v1/runs/${paused.id}`);
  await expect.poll(current).toMatchObject({ status: 'cancelled' });
  const run = await current();
  expect([run.status, ...inShort(run.output)]).toEqual(['cancelled', 'model c1', 'c1 cancelled']);
  expect(run.output[1]).toMatchObject({ output: [], outcome: 'cancelled' });
  expect((await resumeRefusal(server, paused, { tool_results: [result('c1', 'late')] }))[1]).toBe('run_ended');
});

test('a server that asks the user gets a cancellation: a run has no user to ask', async () => {
  const one = agent([use({ name: 'ask', id: 'c1' }), say('Fine.')], { toolkits: [{ type: 'mcp', server: 'test' }] });
  const run = await one.run('Go');
  expect([run.status, ...inShort(run.output)]).toEqual(['completed', 'model c1', 'c1 completed', 'model']);
  expect(run.output[1]).toMatchObject({ output: [{ text: '{"action":"cancel"}' }] });
});
