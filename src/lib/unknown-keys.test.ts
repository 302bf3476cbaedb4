import { expect, test } from 'vitest';
import { z } from 'zod';
import { namingUnknownKeys } from './unknown-keys.ts';

const schema = z.strictObject({
  name: z.string().optional(),
  inner: z.strictObject({ concurrency: z.int() }).optional(),
});

function messagesOf(value: unknown): string[] {
  const { error } = schema.safeParse(value, { error: namingUnknownKeys });
  return (error?.issues ?? []).map(({ path, message }) => `${path.join('.')}: ${message}`);
}

test('an unknown key is named with the nearest known one, or with all of them', () => {
  expect(messagesOf({ nmae: 'a' })).toEqual([': unknown key "nmae": do you mean "name"?']);
  expect(messagesOf({ inner: { concurency: 1, concurrency: 1 } })).toEqual([
    'inner: unknown key "concurency": do you mean "concurrency"?',
  ]);
  expect(messagesOf({ other: 1 })).toEqual([expect.stringMatching(/^: unknown key "other": .*name, inner/)]);
});

test('other problems keep their messages', () => {
  expect(messagesOf({ name: 1 })).toEqual([expect.stringMatching(/^name: .*string/)]);
});
