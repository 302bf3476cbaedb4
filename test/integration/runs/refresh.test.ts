import { afterAll, beforeAll, expect, test } from 'vitest';
import { eventually } from '../../support/eventually.ts';
import { inShort, resumeRefusal, resumeRun, RunAgent, RunStream, textOfRun } from '../../support/runs.ts';
import { say, textOf, use } from '../../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

/** Dynamic toolkits of runs: section 6 of the contract, and its acceptance case 30. */

let server: TestServer;
beforeAll(async () => {
  const note = { name: 'note', annotations: { readOnlyHint: true }, handler: () => 'noted' };
  server = await startTestServer({ mcp: { tools: [note] } });
});
afterAll(() => server.stop());

const tool = (name: string) => ({ name, description: `does ${name}`, parameters: { type: 'object' } });
const toolkit = (name: string, tools: string[], more: object = {}) => ({ name, tools: tools.map(tool), ...more });
const client = (name: string, tools: string[], more: object = {}) => ({
  type: 'client',
  ...toolkit(name, tools, { system_prompt: `${name} 1`, ...more }),
});
const PLANNER = client('planner', ['plan'], { dynamic: true });
const result = (id: string) => ({ tool_call_id: id, content: 'done' });

function agent(scripts: ConstructorParameters<typeof RunAgent>[1], toolkits: object[], params: object = {}): RunAgent {
  return new RunAgent(server, scripts, { instructions: 'Base.', tools: [tool('first')], toolkits, ...params });
}

/** The system prompt and the tools of each request to the model. */
function offers({ requests }: RunAgent): [string, string][] {
  return requests.map(({ messages, tools = [] }) => {
    return [textOf(messages[0]), tools.map((one) => one.function.name).join(' ')];
  });
}

test('30: a dynamic toolkit is refreshed before each model call after the first, at its place', async () => {
  const own = { name: 'plan', id: 'c1' };
  const one = agent(
    [use(own), use({ name: 'second', id: 'c2' }), say('Done.')],
    [client('a', ['x']), PLANNER, client('z', ['y'])],
  );
  const paused = await one.run('Go');
  expect(paused).toMatchObject({
    status: 'requires_action',
    required_action: { turn: 1, tool_calls: [{ tool_call_id: 'c1' }], approvals: [], refresh: ['planner'] },
  });
  const waiting = () => server.api.list('/v1/runs?status=requires_action');
  await eventually(async () => expect(await waiting()).toMatchObject([{ id: paused.id }]));
  const first = { refresh: [toolkit('planner', ['second', 'third'], { system_prompt: 'planner 2' })] };
  const again = await resumeRun(server, paused, { tool_results: [result('c1')], ...first });
  expect(again).toMatchObject({
    status: 'requires_action',
    required_action: { turn: 2, tool_calls: [{ tool_call_id: 'c2' }], refresh: ['planner'] },
  });
  const called = await resumeRun(server, paused, { tool_results: [result('c2')] });
  expect(called.required_action).toMatchObject({ tool_calls: [], refresh: ['planner'] });
  const run = await resumeRun(server, paused, { refresh: [toolkit('planner', [])] });
  expect([run.status, textOfRun(run)]).toEqual(['completed', 'Done.']);
  expect(inShort(run.output)).toEqual(['model c1', 'c1 completed', 'model c2', 'c2 completed', 'model']);
  expect(offers(one)).toEqual([
    ['Base.\na 1\nplanner 1\nz 1', 'first x plan y'],
    ['Base.\na 1\nplanner 2\nz 1', 'first x second third y'],
    ['Base.\na 1\nz 1', 'first x y'],
  ]);
  const shown = await server.api.list<{ type: string }>(`/v1/runs/${run.id}/events?view=full`);
  expect(shown.filter(({ type }) => type === 'toolkit.refreshed')).toMatchObject([
    { toolkit: 'planner', tools: ['second', 'third'] },
    { toolkit: 'planner', tools: [] },
  ]);
});

test('30: after tools of the server alone the run waits for its toolkits, each of which is answered once', async () => {
  const one = agent(
    [use({ name: 'note', id: 'c1' }), say('Done.')],
    [{ type: 'mcp', server: 'test' }, PLANNER, client('list', ['item'], { dynamic: true })],
  );
  const stream = one.stream('Go');
  const paused = await stream.end();
  if (paused.event !== 'response') throw new Error('not paused');
  expect(inShort(paused.output)).toEqual(['model c1', 'c1 completed']);
  expect(paused.required_action).toMatchObject({ tool_calls: [], refresh: ['planner', 'list'] });
  const large = toolkit('planner', ['plan'], { system_prompt: 'large '.repeat(5_000) });
  const refused: [object[], unknown[]][] = [
    [
      [large, toolkit('list', ['plan'])],
      [422, 'duplicate_tool_name', 'refresh[1].tools[0].name'],
    ],
    [[toolkit('list', ['first'])], [422, 'duplicate_tool_name', 'refresh[0].tools[0].name']],
    [
      [large, toolkit('other', [])],
      [422, 'call_not_pending', 'refresh[1].name'],
    ],
    [
      [large, large],
      [422, 'call_answered_twice', 'refresh[1].name'],
    ],
    [[{ name: 'list' }], [400, 'invalid_request', 'refresh[0].tools']],
  ];
  for (const [refresh, error] of refused) expect(await resumeRefusal(server, paused, { refresh })).toEqual(error);
  const path = `/v1/runs/${paused.id}`;
  const body = { refresh: [large], stream: true };
  const headers = { 'idempotency-key': 'k30' };
  const half = RunStream.open(server.api, `${path}/resume`, { body, headers });
  expect(await half.end()).toMatchObject({ required_action: { refresh: ['list'] } });
  expect((await resumeRun(server, paused, { refresh: [large] })).required_action).toMatchObject({ refresh: ['list'] });
  const other = await resumeRefusal(server, paused, { refresh: [toolkit('planner', [])] });
  expect(other).toEqual([409, 'call_already_answered', 'refresh[0].name']);
  const run = await resumeRun(server, paused, { refresh: [toolkit('list', ['item', 'more'])] });
  expect([run.status, textOfRun(run)]).toEqual(['completed', 'Done.']);
  const [, second] = offers(one);
  expect(second?.[0]).toContain('large large');
  expect(second?.[1]).toBe('first note plan item more');
  const whole = RunStream.open(server.api, `${path}/stream`);
  expect(await whole.end()).toMatchObject({ status: 'completed', output: run.output });
  expect((await resumeRefusal(server, paused, { refresh: [large] })).slice(0, 2)).toEqual([409, 'run_ended']);
});

test('a run whose toolkits are refreshed at once with tools of one name fails', async () => {
  const one = agent(
    [use({ name: 'note', id: 'c1' })],
    [{ type: 'mcp', server: 'test' }, PLANNER, client('list', [], { dynamic: true })],
  );
  const paused = await one.run('Go');
  const names = ['planner', 'list'];
  const resumed = await Promise.all(
    names.map((name) => resumeRun(server, paused, { refresh: [toolkit(name, ['x'])] })),
  );
  const failed = resumed.find(({ status }) => status === 'failed');
  expect(failed?.error).toMatchObject({ type: 'init_error', message: expect.stringContaining('named x') });
  expect([failed?.turns, one.requests.length]).toEqual([1, 1]);
});

test('a repetition with its key does not refresh the toolkits of a later model call', async () => {
  const one = agent([use({ name: 'gone', id: 'c1' }), use({ name: 'gone', id: 'c2' }), say('Done.')], [PLANNER], {
    on_tool_failure: 'tell',
  });
  const paused = await one.run('Go');
  const body = { refresh: [toolkit('planner', ['plan'])] };
  const headers = { 'idempotency-key': 'k31' };
  expect((await resumeRun(server, paused, body, headers)).required_action).toMatchObject({ turn: 2 });
  expect((await resumeRun(server, paused, body, headers)).required_action).toMatchObject({ turn: 2 });
  expect(one.requests).toHaveLength(2);
  expect((await resumeRun(server, paused, body)).status).toBe('completed');
});

test('no toolkit is refreshed after the last model call that a run may make, or before it fails', async () => {
  const calls = [use({ name: 'note', id: 'c1' })];
  const limited = await agent(calls, [PLANNER, { type: 'mcp', server: 'test' }], { max_turns: 1 }).run('Go');
  expect(limited.error).toMatchObject({ type: 'max_turns_exceeded' });
  const failed = await agent([use({ name: 'gone', id: 'c1' })], [PLANNER]).run('Go');
  expect(failed.error).toMatchObject({ type: 'invariant_error' });
  for (const { id } of [limited, failed]) {
    const types = (await server.api.list<{ type: string }>(`/v1/runs/${id}/events?view=full`)).map(({ type }) => type);
    expect(types.filter((type) => /toolkit|paused/.test(type))).toEqual([]);
  }
});

test('32: a toolkit that is not refreshed in time ends the run', async () => {
  const one = agent([use({ name: 'note', id: 'c1' })], [PLANNER, { type: 'mcp', server: 'test' }], {
    action_timeout_seconds: 1,
  });
  const paused = await one.stream('Go').end();
  if (paused.event !== 'response') throw new Error('not paused');
  const after = `after_sequence_number=${paused.sequence_number}`;
  const stream = RunStream.open(server.api, `/v1/runs/${paused.id}/stream?${after}`);
  expect(await stream.end()).toMatchObject({ error: { type: 'action_expired' }, output: paused.output });
});
