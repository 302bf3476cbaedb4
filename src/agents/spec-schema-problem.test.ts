import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, onTestFinished, test, vi } from 'vitest';
import { SchemaBudget } from '../engine/schema-budget.ts';
import { cpuStopwatch } from '../lib/timeout.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import { conditionValidators } from '../tools/arguments.ts';
import { specSchemaProblem } from './spec-schema-problem.ts';

type Schema = Record<string, unknown>;

/** An agent with these conditions, 20 to a policy, and this schema of its answers. */
function agentOf(conditions: Schema[], answer?: Schema): AgentSpec {
  const policies = Array.from({ length: Math.ceil(conditions.length / 20) }, (_, i) => {
    const own = conditions.slice(i * 20, i * 20 + 20);
    return {
      match: { arguments: Object.fromEntries(own.map((schema, j) => [`/a${j}`, schema])) },
      decision: 'ask' as const,
    };
  });
  return {
    model: { name: 'm' },
    config: { decision_policies: policies },
    ...(answer && { response_format: { type: 'json_schema', json_schema: { name: 'answer', schema: answer } } }),
  };
}

const check = (spec: AgentSpec, { budget = new SchemaBudget() } = {}) => specSchemaProblem(spec, budget);

/** For what does not concern the time: the first schemas of a process take several times as long. */
const unhurried = () => new SchemaBudget({ maxMs: Infinity });

/** Takes 10 to 20 ms to compile; `leaf` makes schemas different. */
function deep(leaf: unknown): Schema {
  let schema: Schema = { const: leaf };
  for (let i = 0; i < 84; i++) schema = { items: schema };
  return schema;
}

const flat = (count: number): Schema[] => Array.from({ length: count }, (_, i) => ({ maximum: i }));

test('a request may have 100 schemas: the next one is named', async () => {
  expect(await check(agentOf(flat(99), { type: 'object' }), { budget: unhurried() })).toBeUndefined();
  expect(await check(agentOf(flat(101)))).toEqual({
    code: 'invalid_agent',
    message: expect.stringMatching(/^the condition for \/a0 is one too many: .* 100 .* leave some out$/),
    param: 'config.decision_policies.5.match.arguments',
  });
  expect(await check(agentOf(flat(100), { type: 'object' }))).toMatchObject({
    message: expect.stringMatching(/^the schema of answers is one too many/),
    param: 'response_format.json_schema.schema',
  });
});

test('all schemas together have 64 KiB, as bytes', async () => {
  const long = (bytes: number): Schema => ({ const: 'é'.repeat((bytes - '{"const":""}'.length) / 2) });
  expect(await check(agentOf([long(40_000), long(25_536)]), { budget: unhurried() })).toBeUndefined();
  expect(await check(agentOf([long(40_000), long(25_538)]))).toMatchObject({
    message: expect.stringMatching(/^the condition for \/a1 is too long: .* 64 KiB .* shorten them$/),
  });
});

test('compiling takes at most 100 ms of processor time in sum, in several turns of the event loop', async () => {
  const spec = agentOf(Array.from({ length: 60 }, (_, i) => deep(`sum ${i}`)));
  const over = new AbortController();
  let turns = 0;
  const counting = (async () => {
    for (; !over.signal.aborted; turns++) await nextTurn();
  })();
  const used = cpuStopwatch();
  const problem = await check(spec);
  over.abort();
  expect(used()).toBeLessThan(250);
  expect(problem?.message).toMatch(/^the condition for \/a\d+ is too expensive: .* 100 ms .* make them simpler$/);
  await counting;
  expect(turns).toBeGreaterThan(1);
});

test('schemas that were accepted are not compiled again, and those that were rejected are measured anew', async () => {
  const good = agentOf([{ maximum: 7 }, deep('good')]);
  const bad = agentOf(Array.from({ length: 60 }, (_, i) => deep(`bad ${i}`)));
  expect(await check(good, { budget: unhurried() })).toBeUndefined();
  const used = cpuStopwatch();
  expect(await check(structuredClone(good), { budget: unhurried() })).toBeUndefined();
  expect(used()).toBeLessThan(10);
  const measured = conditionValidators.compile(deep('bad 0'));
  for (let i = 0; i < 2; i++) expect((await check(structuredClone(bad)))?.message).toMatch(/is too expensive/);
  expect(conditionValidators.compile(deep('bad 0'))).not.toBe(measured);
  // The time that it took once counts although nothing is compiled: otherwise a repeated request could be accepted.
  const known = await check(good, { budget: new SchemaBudget({ maxMs: 1 }) });
  expect(known?.message).toMatch(/is too expensive/);
});

test('1,000 conditions are rejected before one is compiled', async () => {
  const spec = agentOf(Array.from({ length: 1000 }, (_, i) => deep(i)));
  const used = cpuStopwatch();
  expect((await check(spec))?.message).toMatch(/too long|too many/);
  expect(used()).toBeLessThan(20);
});

test('the agents of a request share its budget', async () => {
  const budget = unhurried();
  expect(await check(agentOf(flat(60)), { budget })).toBeUndefined();
  expect(await check(agentOf(flat(41)), { budget })).toMatchObject({
    param: 'config.decision_policies.2.match.arguments',
  });
});

test('the schemas of an agent that is stored are not checked again', async () => {
  expect(await check(agentOf([{ type: 'none' }]), { budget: unhurried() })).toMatchObject({
    message: expect.stringMatching(/^the condition for \/a0 is not a valid JSON Schema/),
  });
  expect(await specSchemaProblem(agentOf([{ type: 'none' }, ...flat(101)]), undefined)).toBeUndefined();
});

test('a schema during whose compilation the machine paused is not rejected for that', async () => {
  const compile = vi.spyOn(conditionValidators, 'compile');
  onTestFinished(() => compile.mockRestore());
  compile.mockReturnValueOnce({ validator: () => [], ms: 5_000 });
  expect(await check(agentOf([{ minimum: 5 }]))).toBeUndefined();
  expect(compile).toHaveBeenCalledTimes(2);
});

test('a schema that refers to itself without end, by which no value can be checked, is rejected', async () => {
  for (const schema of [{ $ref: '#' }, { anyOf: [{ $ref: '#' }, { type: 'string' }] }]) {
    expect([schema, await check(agentOf([schema]), { budget: unhurried() })]).toMatchObject([
      schema,
      { code: 'invalid_agent' },
    ]);
  }
});
