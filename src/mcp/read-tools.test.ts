import { expect, test } from 'vitest';
import { cpuStopwatch } from '../lib/timeout.ts';
import { listedSchemaOf, readTool, resultSchemaOf } from './read-tools.ts';

const EMPTY = { type: 'object', properties: {} };

/** The schema of a tool as it is read, and whether it has lost something. */
function schemaOf(inputSchema: unknown): { schema: unknown; isRepaired: boolean } {
  const read = readTool({ name: 'a', inputSchema });
  if (!('tool' in read)) throw new Error(read.warning);
  return { schema: read.tool['inputSchema'], isRepaired: read.warning !== undefined };
}

const withA = (a: unknown) => ({ type: 'object', properties: { a } });

test.each<[string, unknown, unknown]>([
  ['missing', undefined, EMPTY],
  ['empty', {}, EMPTY],
  ['an object without properties', { type: 'object' }, EMPTY],
  ['of arrays without items', withA({ type: ['array', 'null'] }), withA({ type: ['array', 'null'], items: {} })],
  [
    'of nested arrays without items',
    withA({ additionalProperties: { anyOf: [{ type: 'array' }, { type: 'null' }] } }),
    withA({ additionalProperties: { anyOf: [{ type: 'array', items: {} }, { type: 'null' }] } }),
  ],
  [
    'of tuples, as in draft-07',
    withA({ type: 'array', items: [{ type: 'string' }, true], additionalItems: false }),
    withA({ type: 'array', prefixItems: [{ type: 'string' }, true], items: false }),
  ],
])('a schema that is %s is completed', (_, given, expected) => {
  expect(schemaOf(given)).toEqual({ schema: expected, isRepaired: false });
});

test.each<[string, unknown, unknown]>([
  ['of another type', { type: 'string' }, EMPTY],
  ['of several types', { type: ['object', 'null'] }, EMPTY],
  ['without properties but null', { type: 'object', properties: null, required: 'a' }, EMPTY],
  ['with an unknown type', withA({ type: 'file', description: 'd' }), withA({ description: 'd' })],
  ['with required as in draft-03', withA({ type: 'string', required: true }), withA({ type: 'string' })],
  ['with exclusive bounds as in draft-04', withA({ minimum: 1, exclusiveMinimum: true }), withA({ minimum: 1 })],
  ['with values that are none', withA({ enum: [], description: null }), withA({})],
  ['with a list of unknown types', withA({ type: ['string', 'file'] }), withA({})],
  ['with items that are no schema', withA({ type: 'array', items: 'string' }), withA({ type: 'array', items: {} })],
  ['with other properties that are no schema', { ...EMPTY, additionalProperties: 'no' }, EMPTY],
  ['with definitions that are none', { ...EMPTY, $defs: 7, definitions: [] }, EMPTY],
  [
    'with keywords that providers reject at the top',
    { ...EMPTY, enum: [{}], not: {}, anyOf: [{}], allOf: [{}] },
    EMPTY,
  ],
  ['with a property that is no schema', withA('string'), withA(true)],
  [
    'of alternatives',
    {
      type: 'object',
      oneOf: [withA({ type: 'string' }), { properties: { b: { type: 'null' } } }],
      properties: { b: {} },
    },
    { type: 'object', properties: { a: { type: 'string' }, b: {} } },
  ],
  [
    'whose alternatives define a property differently',
    { anyOf: [withA({ type: 'string' }), withA({ type: 'number' }), withA({ type: 'string' })] },
    withA({ anyOf: [{ type: 'string' }, { type: 'number' }] }),
  ],
  [
    'whose alternatives are references, in a circle and to further ones',
    {
      oneOf: [{ $ref: '#/$defs/a' }, { $ref: '#/$defs/b~1c' }],
      additionalProperties: false,
      $defs: {
        a: { ...withA({}), $ref: '#/$defs/b~1c' },
        'b/c': { allOf: [{ $ref: '#/$defs/a' }, { properties: { b: true } }] },
      },
    },
    {
      type: 'object',
      properties: { a: {}, b: true },
      additionalProperties: false,
      $defs: {
        a: { ...withA({}), $ref: '#/$defs/b~1c' },
        'b/c': { allOf: [{ $ref: '#/$defs/a' }, { properties: { b: true } }] },
      },
    },
  ],
  [
    'whose alternatives refer to nothing, and which is left open',
    { oneOf: [{ $ref: 'https://example.com/a' }], additionalProperties: false, unevaluatedProperties: false },
    EMPTY,
  ],
])('a schema %s is repaired', (_, given, expected) => {
  expect(schemaOf(given)).toEqual({ schema: expected, isRepaired: true });
});

test('keywords with the names of inherited properties are like other unknown ones', () => {
  const a = '{ "__proto__": {}, "__defineGetter__": 1, "hasOwnProperty": 1, "constructor": 1, "valueOf": 1 }';
  const schema = { type: 'object', properties: JSON.parse(`{ "a": ${a}, "__proto__": {} }`) as object };
  expect(JSON.stringify(schemaOf(schema))).toBe(JSON.stringify({ schema, isRepaired: false }));
});

test('a schema that providers accept stays the same', () => {
  const schema = {
    $schema: 'http://json-schema.org/draft-07/schema#',
    type: 'object',
    properties: { a: { type: 'array', items: { $ref: '#/$defs/b' } }, __proto__x: true, c: { enum: [1, null] } },
    required: ['a'],
    additionalProperties: false,
    $defs: { b: { anyOf: [{ type: 'string', 'x-mcp-header': 'B' }, { type: 'null' }] } },
  };
  expect(schemaOf(schema)).toEqual({ schema, isRepaired: false });
});

test('many alternatives that refer to one large schema are read in the time of one', () => {
  const properties = Object.fromEntries(Array.from({ length: 2_000 }, (_, i) => [`p${i}`, {}]));
  const anyOf = Array.from({ length: 20_000 }, () => ({ $ref: '#/$defs/a' }));
  const used = cpuStopwatch();
  expect(schemaOf({ anyOf, $defs: { a: { properties } } }).schema).toMatchObject({ properties });
  expect(used()).toBeLessThan(2_000);
});

test('a tool whose schema is changed for models keeps the one that its server lists, and none that it sends as such', () => {
  const anyOf = [withA({ type: 'string' }), withA({ type: 'number' })];
  const listedOf = (inputSchema: object) => {
    const read = readTool({ name: 'a', inputSchema, _meta: { 'io.everturn/listed-schema': {} } });
    return 'tool' in read ? listedSchemaOf(read.tool) : undefined;
  };
  expect(listedOf({ anyOf })).toEqual({ listedSchema: { type: 'object', anyOf } });
  expect(listedOf({ type: 'string' })).toEqual({});
  expect(listedOf(withA({}))).toEqual({});
});

test('the schema of results is kept beside the tool, as long as it is an object of bounded size', () => {
  const resultOf = (outputSchema: unknown) => {
    const read = readTool({ name: 'a', outputSchema, _meta: { 'io.everturn/result-schema': {} } });
    if (!('tool' in read)) throw new Error('the tool was left out');
    expect(read.tool).not.toHaveProperty('outputSchema');
    return resultSchemaOf(read.tool).resultSchema;
  };
  const schema = { type: 'object', properties: { left: { type: 'integer' } } };
  expect(resultOf(schema)).toEqual(schema);
  expect([resultOf(undefined), resultOf([]), resultOf('x')]).toEqual([undefined, undefined, undefined]);
  expect(resultOf({ description: 'x'.repeat(70_000) })).toBeUndefined();
});

test.each([
  [{ readOnlyHint: 'yes', title: 1 }, undefined],
  [{ readOnlyHint: true, destructiveHint: null, more: true }, { readOnlyHint: true }],
  [{ title: 'A' }, { title: 'A' }],
  ['read-only', undefined],
])('annotations of the wrong type are dropped: %j', (annotations, expected) => {
  const read = readTool({ name: 'a', title: 1, description: null, annotations, icons: [{}] });
  expect(read).toEqual({ tool: { name: 'a', inputSchema: EMPTY, ...(expected && { annotations: expected }) } });
});

test.each([
  [null, 'a tool without a name was left out'],
  [{ name: 7 }, 'a tool without a name was left out'],
  [{ name: '' }, 'a tool without a name was left out'],
  [
    { name: 'x'.repeat(100), execution: { taskSupport: 'required' } },
    `the tool "${'x'.repeat(64)}" was left out: it runs only as a task, which is not supported`,
  ],
  [
    { name: 'a"b', execution: { taskSupport: 'required' } },
    'the tool "a\\"b" was left out: it runs only as a task, which is not supported',
  ],
])('%j is left out', (listed, warning) => {
  expect(readTool(listed)).toEqual({ warning });
});
