import { expect, test } from 'vitest';
import { z } from 'zod';
import { fieldsToWire, recordToWire, rowToWire } from './wire-fields.ts';

const call = z.object({
  tool_call_id: z.string(),
  is_open: z.boolean(),
  message_id: z.string().optional(),
  ended_at: z.string().nullable(),
  arguments: z.record(z.string(), z.unknown()),
});

const fields = { endedAt: null, arguments: {}, isOpen: false, toolCallId: 'c' };

test('fields get the names and the order of the schema, and those that are undefined are left out', () => {
  const shown = fieldsToWire(call, { ...fields, messageId: undefined });
  expect(Object.entries(shown)).toEqual([
    ['tool_call_id', 'c'],
    ['is_open', false],
    ['ended_at', null],
    ['arguments', {}],
  ]);
});

test('the names in a value stay as a user or a provider has written them', () => {
  const written = '{"fooBar":{"toolCallId":[{"aB":1}]},"__proto__":{"isOpen":true},"constructor":1,"a_b":2}';
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- an object
  const hostile = JSON.parse(written) as Record<string, unknown>;
  const shown = fieldsToWire(call, { ...fields, arguments: hostile });
  expect(JSON.stringify(shown.arguments)).toBe(written);
  expect(Object.getPrototypeOf(shown)).toBe(Object.prototype);
});

test('a field that the schema does not have is a type error, and is not shown', () => {
  // @ts-expect-error -- the field is to be left out, or to be in the schema
  expect(fieldsToWire(call, { ...fields, specHash: 'h' })).not.toHaveProperty('spec_hash');
  const optional: { isInternal?: true } = { isInternal: true };
  // @ts-expect-error -- also if it may be absent
  expect(fieldsToWire(call, { ...fields, ...optional })).not.toHaveProperty('is_internal');
  const internal = { specHash: 'h', ...optional };
  expect(fieldsToWire(call, { ...fields, ...internal }, 'specHash', 'isInternal')).toEqual(fieldsToWire(call, fields));
  // @ts-expect-error -- what is named as internal is not in the schema
  expect(fieldsToWire(call, fields, 'isOpen')).toHaveProperty('is_open');
  // @ts-expect-error -- and among the fields
  expect(fieldsToWire(call, fields, 'specHash')).not.toHaveProperty('spec_hash');
});

test('a required field that is missing is a type error', () => {
  const { isOpen: _, ...rest } = fields;
  // @ts-expect-error -- the schema requires `is_open`
  expect(fieldsToWire(call, rest)).not.toHaveProperty('is_open');
});

test('an event has the kind and the time of its record', () => {
  const paused = z.object({ type: z.literal('turn.paused'), created_at: z.string(), thread_id: z.null() });
  const record = { at: '2026-11-24T08:00:00.000Z', kind: 'turn.paused', threadId: null } as const;
  expect(JSON.stringify(recordToWire(paused, record))).toBe(
    '{"type":"turn.paused","created_at":"2026-11-24T08:00:00.000Z","thread_id":null}',
  );
});

test('a row is shown with the fields that the schema has', () => {
  const row = { secret: 's', arguments: {}, ended_at: null, is_open: true, tool_call_id: 'c', message_id: undefined };
  expect(JSON.stringify(rowToWire(call, row))).toBe(
    '{"tool_call_id":"c","is_open":true,"ended_at":null,"arguments":{}}',
  );
});
