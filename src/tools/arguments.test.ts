import { describe, expect, test } from 'vitest';
import { longestStretch } from '../../test/support/main-thread.ts';
import { parseArguments, parseModelArguments } from './arguments.ts';

const schema = {
  type: 'object',
  properties: {
    city: { type: 'string', minLength: 1 },
    unit: { enum: ['c', 'f'] },
    stops: { type: 'array', items: { type: 'object', properties: { at: { type: 'string', format: 'date-time' } } } },
    size: { anyOf: [{ type: 'number' }, { type: 'null' }] },
  },
  required: ['city'],
  additionalProperties: false,
};

const numbers = (count: number): number[] => Array.from({ length: count }, (_, i) => i);
const valuesOf = (count: number): string => JSON.stringify(Array.from({ length: count }, () => count - 1));

function message(text: string, by: object = schema): string {
  const parsed = parseArguments(by, text);
  return parsed.ok ? 'ok' : parsed.message;
}

test('valid arguments are returned as an object', () => {
  const text = '{"city":"Kyoto","unit":"c","stops":[{"at":"2026-11-21T08:00:00Z"}],"size":null}';
  expect(parseArguments(schema, text)).toEqual({ ok: true, value: JSON.parse(text) });
});

test('empty text is an empty object', () => {
  expect(parseArguments({ type: 'object' }, '')).toEqual({ ok: true, value: {} });
  expect(parseArguments({ type: 'object' }, ' \n')).toEqual({ ok: true, value: {} });
  expect(message('')).toBe("The arguments do not fit the tool's schema: must have required property 'city'");
});

test.each([
  ['{"city":', /^The arguments are not valid JSON: /],
  ['[1]', /^The arguments must be a JSON object, not an array$/],
  ['"Kyoto"', /^The arguments must be a JSON object, not a string$/],
  ['null', /^The arguments must be a JSON object, not null$/],
  ['{"city":1}', /schema: \/city must be string$/],
  ['{"city":""}', /schema: \/city must NOT have fewer than 1 characters$/],
  ['{"city":"x","town":1}', /schema: must NOT have additional properties: "town"$/],
  ['{"city":"x","unit":"k"}', /schema: \/unit must be equal to one of the allowed values: \["c","f"\]$/],
  ['{"city":"x","stops":[{},{"at":"noon"}]}', /schema: \/stops\/1\/at must match format "date-time"$/],
  ['{"city":"x","size":"big"}', /schema: \/size must be number\n\/size must match a schema in anyOf$/],
])('%s is rejected with the reason', (text, expected) => {
  expect(message(text)).toMatch(expected);
});

test('a missing property that has a default is no error, also inside', () => {
  const level = { enum: ['info', 'error'], default: 'info' };
  const inner = { type: 'object', properties: { level, name: {} }, required: ['level', 'name'] };
  const lax = { properties: { level, all: { items: inner } }, required: ['level', 'all'] };
  expect(message('{"all":[{"name":1}]}', lax)).toBe('ok');
  expect(message('{"all":[{}]}', lax)).toMatch("/all/0 must have required property 'name'");
  expect(message('{"level":"x","all":[]}', lax)).toMatch('/level must be equal to one of');
  expect(message('{}', lax)).toMatch("must have required property 'all'");
});

test('the server of an MCP tool decides on the arguments that a model writes; those of other tools are validated', () => {
  const parse = (info: Parameters<typeof parseModelArguments>[0]['info'], text: string): boolean =>
    parseModelArguments({ info, parameters: schema }, text).ok;
  const mcp = { type: 'mcp', serverId: 's', serverName: 's', name: 't' } as const;
  const system = { type: 'system', name: 't' } as const;
  expect(['{"city":1}', '{}', '', '[]', '{"city":'].map((text) => parse(mcp, text))).toEqual([
    true,
    true,
    true,
    false,
    false,
  ]);
  expect(['{"city":1}', '{}', '{"city":"x"}'].map((text) => parse(system, text))).toEqual([false, false, true]);
});

test('the message stays short, and valid Unicode', () => {
  const names = Array.from({ length: 500 }, (_, i) => `option-${i}`);
  expect(message('{"a":"x"}', { properties: { a: { enum: names } } }).length).toBeLessThan(600);
  expect(message(`{"${'x'.repeat(10_000)}":1}`).length).toBeLessThan(600);
  expect(message(`{"city":"x","${'\ud83d\ude00'.repeat(1000)}":1}`).isWellFormed()).toBe(true);
  expect(message('{"\\ud800":1}', { additionalProperties: { type: 'string' } })).toMatch('/\ufffd must be string');
});

describe('schemas', () => {
  test('of draft-07 are read as such, others as 2020-12', () => {
    const tuple = (rest: object) => ({ properties: { pair: { type: 'array', ...rest } } });
    const old = tuple({ items: [{ type: 'string' }, { type: 'number' }] });
    const draft07 = { $schema: 'http://json-schema.org/draft-07/schema#', ...old };
    const wrong = '{"pair":["a","b"]}';
    expect(message(wrong, draft07)).toMatch('/pair/1 must be number');
    expect(message(wrong, tuple({ prefixItems: [{ type: 'string' }, { type: 'number' }] }))).toMatch('/pair/1');
    expect(message(wrong, { $schema: 'https://json-schema.org/draft/2020-12/schema', properties: {} })).toBe('ok');
  });

  test.each([
    ['an unknown type', { type: 'thing' }],
    ['a reference to nowhere', { $ref: 'https://example.com/other.json' }],
    ['a broken pattern', { properties: { a: { pattern: '(' } } }],
    ['a keyword of the wrong type', { properties: 7 }],
    ['asynchronous validation', { $async: true, properties: { a: { type: 'string' } } }],
    ['an unknown dialect', { $schema: 'https://example.com/dialect', properties: { a: true } }],
  ])('with %s leave the arguments to the server', (_, odd) => {
    expect(parseArguments(odd, '{"a":1}')).toEqual({ ok: true, value: { a: 1 } });
    expect(message('[]', odd)).toMatch('must be a JSON object');
  });

  test('may share an id, and use unknown keywords and formats', () => {
    const one = { $id: 'https://example.com/s', properties: { a: { type: 'string', format: 'x', 'x-header': 'A' } } };
    const two = { $id: 'https://example.com/s', properties: { a: { type: 'number' } } };
    expect(message('{"a":1}', one)).toMatch('/a must be string');
    expect(message('{"a":1}', two)).toBe('ok');
    expect(message('{"a":1}', structuredClone(one))).toMatch('/a must be string');
  });

  test('still work when there are more than the cache holds', () => {
    for (let i = 2; i < 600; i++) {
      expect(message('{"a":1}', { properties: { a: { minimum: i } } })).toMatch(`/a must be >= ${i}`);
    }
    expect(message('{"a":1}', { properties: { a: { minimum: 2 } } })).toMatch('/a must be >= 2');
  });
});

describe('expensive input', () => {
  test('is rejected before parsing when it is too long or too deep', () => {
    expect(message(`{"a":${'['.repeat(500_000)}`, {})).toBe('The arguments are nested deeper than 100 levels');
    expect(message(`{"a":"${'x'.repeat(1024 * 1024)}"}`, {})).toBe('The arguments are longer than 1048576 characters');
    expect(message(JSON.stringify({ a: '[[{"\\'.repeat(1000) }), {})).toBe('ok');
  });

  test('is left to the server when its validation takes too long', () => {
    const startedAt = performance.now();
    expect(message(`{"a":"${'a'.repeat(50)}!"}`, { properties: { a: { pattern: '^(a+)+$' } } })).toBe('ok');
    const branch = { properties: { a: { $ref: '#' } } };
    const doubling = { type: 'object', anyOf: [branch, { ...branch }] };
    expect(message('{"a":'.repeat(90) + '1' + '}'.repeat(90), doubling)).toBe('ok');
    expect(performance.now() - startedAt).toBeLessThan(5_000);
  });

  test.each<[string, object, string]>([
    ['an enum of 8,000 values', { enum: numbers(8_000) }, valuesOf(9_000)],
    ['an enum of 90,000 values', { enum: numbers(90_000) }, valuesOf(9_000)],
    ['a pattern with exponential backtracking', { pattern: '^(a+)+$' }, `["${'a'.repeat(50)}!"]`],
    [
      '10,000 letters in 40 patterns',
      { allOf: numbers(40).map((i) => ({ pattern: `${'\\p{L}'.repeat(250)}${i}` })) },
      '["x"]',
    ],
    ['1,000 choices', { oneOf: numbers(1_000).map((minLength) => ({ type: 'string', minLength })) }, valuesOf(9_000)],
    [
      '1,000 parts',
      { allOf: numbers(300).map((i) => ({ properties: { [`p${i}`]: { minimum: 1 } } })) },
      valuesOf(9_000),
    ],
    ['a million values', {}, `[${'{},'.repeat(340_000)}1]`],
  ])('never blocks the event loop: %s', async (_, items, array) => {
    const schemas = numbers(10).map((i) => ({ properties: { a: { items } }, title: String(i) }));
    const stretch = await longestStretch(async () => {
      for (const one of schemas) {
        parseArguments(one, `{"a":${array}}`);
        await new Promise((resolve) => void setImmediate(resolve));
      }
    });
    expect(stretch).toBeLessThan(500);
  });

  test('also when the schema is expensive', () => {
    let nested: object = {};
    for (let i = 0; i < 20_000; i++) nested = { items: nested };
    expect(message('{"a":1}', nested)).toBe('ok');
  });
});
