import { describe, expect, test } from 'vitest';
import { longestStretch } from '../../test/support/main-thread.ts';
import { emptyText } from '../core/message.ts';
import type { UnsequencedRecord } from '../core/records/log.ts';
import type { ModelMessage } from '../core/records/message.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import { outputValidators, checkOutput, outcomeOf, repairsLeft } from './structured-output.ts';

const city = {
  type: 'object',
  properties: { name: { type: 'string' }, size: { enum: ['small', 'large'] } },
  required: ['name', 'size'],
  additionalProperties: false,
};

function formatOf(schema?: Record<string, unknown>): AgentSpec['response_format'] {
  return { type: 'json_schema', json_schema: { name: 'city', schema } };
}

const answer = (content: string, more: Partial<ModelMessage> = {}) => ({
  content,
  refusal: '',
  finishReason: 'stop' as const,
  ...more,
});

function problemIn(content: string, schema: Record<string, unknown> = city): string | undefined {
  const check = checkOutput(formatOf(schema), answer(content));
  return check?.fits === false ? check.problem : undefined;
}

describe('an answer', () => {
  test('that fits is any JSON value of the schema', () => {
    expect(checkOutput(formatOf(city), answer(' {"name":"Kyoto","size":"large"}\n'))).toEqual({ fits: true });
    expect(checkOutput(formatOf({ type: 'array' }), answer('[]'))).toEqual({ fits: true });
    expect(checkOutput(formatOf(), answer('7'))).toEqual({ fits: true });
  });

  test.each([
    ['', /^it is not valid JSON/],
    ['Kyoto is large.', /^it is not valid JSON/],
    ['```json\n{}\n```', /^it is not valid JSON/],
    ['null', /^must be object$/],
    [
      '{"size":"huge","town":1}',
      /^must have required property 'name'\nmust NOT have additional properties: "town"\n\/size must be equal to one of the allowed values: \["small","large"\]$/,
    ],
    [`{"name":"${'x'.repeat(300_000)}","size":"small"}`, /^it is longer than 262144 bytes$/],
    ['['.repeat(200), /^it is nested deeper than 100 levels$/],
  ])('such as %.40s does not fit, and all reasons are given', (content, problem) => {
    expect(problemIn(content)).toMatch(problem);
  });

  test('is not checked without a schema, nor if it is a refusal', () => {
    expect(checkOutput(undefined, answer('hi'))).toBeUndefined();
    expect(checkOutput({ type: 'json_object' }, answer('hi'))).toBeUndefined();
    expect(checkOutput(formatOf(city), answer('', { refusal: 'I cannot do that.' }))).toBeUndefined();
    expect(checkOutput(formatOf(city), answer('{"na', { finishReason: 'content_filter' }))).toBeUndefined();
  });

  test('without a schema may have to be JSON', () => {
    const check = (content: string, more = {}) =>
      checkOutput({ type: 'json_object' }, answer(content, more), { checksJson: true });
    expect(check(' [1]\n')).toEqual({ fits: true });
    const problem = expect.stringMatching(/^it is not valid JSON/);
    expect(check('Kyoto.')).toEqual({ fits: false, problem, isAnyJson: true });
    expect(check('', { refusal: 'No.' })).toBeUndefined();
    expect(checkOutput({ type: 'text' }, answer('hi'), { checksJson: true })).toBeUndefined();
  });

  test('that cannot be checked in time does not fit, and the event loop is not blocked for long', async () => {
    const hostile = { type: 'string', pattern: '^(a+)+$' };
    const stretch = await longestStretch(() => {
      expect(problemIn(`"${'a'.repeat(50)}!"`, hostile)).toMatch(/cannot be checked in time/);
      return Promise.resolve();
    });
    expect(stretch).toBeLessThan(1_000);
    expect(problemIn('{}', { $ref: 'https://example.com/other.json' })).toBe('the schema cannot be evaluated');
  });

  test('with many errors is described in few words', () => {
    const names = Array.from({ length: 5_000 }, (_, i) => `${'x'.repeat(1_000)}${i}`);
    const problem = problemIn(JSON.stringify(Object.fromEntries(names.slice(0, 200).map((name) => [name, 1]))));
    expect(problem?.length).toBeLessThan(2_100);
    const choices = { items: { enum: Array.from({ length: 8_000 }, (_, i) => i) } };
    const wrong = JSON.stringify(Array.from({ length: 9_000 }, () => -1));
    expect(problemIn(wrong, choices)?.length).toBeLessThan(2_100);
  });
});

test.each([
  ['the usual', city, true],
  ['a recursive one', { $defs: { n: { properties: { n: { $ref: '#/$defs/n' } } } }, $ref: '#/$defs/n' }, true],
  ['of an unknown type', { type: 'thing' }, false],
  ['with a reference to another document', { $ref: 'https://example.com/other.json' }, false],
  ['too large', { description: 'x'.repeat(70_000) }, false],
])('a schema that is %s', (_, schema, isAccepted) => {
  expect(outputValidators.of(schema) !== null).toBe(isAccepted);
});

describe('repairs', () => {
  const spec = (repairs?: number): AgentSpec => ({
    model: { name: 'm' },
    ...(repairs !== undefined && { config: { structured_output: { max_repairs: repairs } } }),
  });
  const message = (fits: boolean, threadId = 'main'): ModelMessage => ({
    kind: 'model.message',
    id: 'msg_1',
    at: '',
    threadId,
    ...emptyText(),
    toolCalls: [],
    finishReason: 'stop',
    structured: fits ? { fits } : { fits, problem: 'must be object' },
  });
  const turn = { kind: 'turn.created' } as UnsequencedRecord;

  test('are counted in the turn, or in the thread of a sub-agent', () => {
    expect(repairsLeft(spec(), [turn], 'main')).toBe(2);
    expect(repairsLeft(spec(), [turn, message(false), message(false, 'thr_1')], 'main')).toBe(1);
    expect(repairsLeft(spec(1), [turn, message(false), message(false)], 'main')).toBe(0);
    expect(repairsLeft(spec(), [turn, message(false), message(false), turn, message(true)], 'main')).toBe(2);
    expect(repairsLeft(spec(), [turn, message(false, 'thr_1'), turn], 'thr_1')).toBe(1);
    expect(repairsLeft(spec(0), [turn], 'main')).toBe(0);
  });

  test('are asked for until none is left, then the turn ends in an error', () => {
    const answered = { status: 'answered' as const };
    expect(outcomeOf(answered, message(false), 1)).toEqual(answered);
    expect(outcomeOf(answered, message(true), 0)).toEqual(answered);
    expect(outcomeOf(answered, message(false), 0)).toEqual({
      status: 'error',
      message: "The answer does not fit the agent's JSON Schema: must be object",
      code: 'answer_misfit',
    });
  });
});
