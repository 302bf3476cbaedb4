import { Ajv } from 'ajv';
import { fc } from '../../test/support/fast-check.ts';
import { expect, test } from 'vitest';
import { portableSchema } from './portable-schema.ts';

test('booleans are objects where a schema is expected, and nothing else changes', () => {
  const schema = {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    type: 'object',
    properties: { a: true, b: { anyOf: [true, { type: 'array', items: false }] }, items: { const: true } },
    $defs: { x: true },
    additionalProperties: false,
    default: { properties: { a: true } },
  };
  const before = structuredClone(schema);
  expect(portableSchema(schema)).toEqual({
    type: 'object',
    properties: { a: {}, b: { anyOf: [{}, { type: 'array', items: { not: {} } }] }, items: { const: true } },
    $defs: { x: {} },
    additionalProperties: false,
    default: { properties: { a: true } },
  });
  expect(schema).toEqual(before);
  expect(portableSchema(schema)).toBe(portableSchema(schema));
});

test.each([
  ...['items', 'contains', 'not', 'if', 'then', 'else', 'propertyNames'].map((key) => [key, true, {}]),
  ...['anyOf', 'oneOf', 'allOf', 'prefixItems'].map((key) => [key, [true], [{}]]),
  ...['properties', 'patternProperties', '$defs', 'definitions', 'dependentSchemas'].map((key) => [
    key,
    { a: true },
    { a: {} },
  ]),
] as [string, unknown, unknown][])('the schemas of %s are rewritten', (key, given, sent) => {
  expect(portableSchema({ [key]: given })).toEqual({ [key]: sent });
});

const schemas = fc.letrec<{ schema: unknown }>((tie) => ({
  schema: fc.oneof(
    { maxDepth: 4 },
    fc.boolean(),
    fc.constantFrom({}, { type: 'string' }, { const: true }, { type: 'integer', minimum: 2 }),
    fc
      .dictionary(fc.constantFrom('a', 'b', 'items'), tie('schema'), { maxKeys: 3 })
      .map((properties) => ({ properties })),
    fc.array(tie('schema'), { minLength: 1, maxLength: 3 }).map((anyOf) => ({ anyOf })),
    tie('schema').map((not) => ({ not })),
    tie('schema').map((items) => ({ items })),
  ),
})).schema;

test('what a schema accepts stays the same', () => {
  const ajv = new Ajv({ strict: false });
  const values = fc.jsonValue({ maxDepth: 3 });
  const value = fc.oneof(values, fc.dictionary(fc.constantFrom('a', 'b', 'items'), values));
  fc.assert(
    fc.property(schemas, value, (schema, one) => {
      const given = { properties: { x: schema } };
      const is = (by: object) => ajv.compile(by)({ x: one });
      expect(is(portableSchema(given))).toBe(is(given));
    }),
    { numRuns: 300 },
  );
});

test('any depth is taken', () => {
  let schema: Record<string, unknown> = { properties: { a: true } };
  for (let i = 0; i < 20_000; i++) schema = { not: schema };
  expect(portableSchema(schema)).toHaveProperty('not');
});
