import { fc } from '../../test/support/fast-check.ts';
import { expect, test } from 'vitest';
import type { ModelMessage } from '../core/records/message.ts';
import { breakDown, inputCharacters } from './input-breakdown.ts';

const message: ModelMessage = {
  kind: 'model.message',
  id: 'msg_1',
  at: '2026-01-01T00:00:00.000Z',
  threadId: 'main',
  content: 'x'.repeat(10),
  refusal: '',
  reasoning: 'not sent back',
  toolCalls: [
    {
      id: 'call_1',
      name: 'look',
      arguments: '{"a":1}',
      info: { type: 'system', name: 'look' },
      route: { to: 'answered' },
    },
  ],
  finishReason: 'tool_calls',
};

test('parts of a request are measured by their texts; images count the same', () => {
  const file = { type: 'file' as const, name: 'f', bytes: 1_000_000, blob: '0'.repeat(64) };
  const image = { ...file, mimeType: 'image/png' };
  expect(
    inputCharacters({
      model: 'm',
      params: {},
      system: `${'i'.repeat(20)}\n\n${'s'.repeat(7)}\n\nnote`,
      instructionsLength: 20,
      skillsLength: 7,
      transcript: [
        { role: 'user', content: [{ type: 'text', text: 'hello' }, image] },
        { role: 'assistant', message },
        { role: 'tool', toolCallId: 'call_1', name: 'look', content: 'sea', files: [image] },
      ],
      tools: [{ name: 'look', description: 'looks', parameters: { type: 'object' } }],
      responseFormat: { type: 'json_object' },
      fileContent: () => Promise.reject(new Error('not asked for')),
    }),
  ).toEqual({
    harness: 8,
    skills: 7,
    instructions: 20 + '{"type":"json_object"}'.length,
    toolDefinitions: 4 + 5 + '{"type":"object"}'.length,
    messages: 5 + 4_000 + 10 + 4 + 7 + 3 + 4_000,
  });
});

test('tokens are divided in proportion to characters, and add up', () => {
  const count = fc.nat({ max: 10_000_000 });
  const parts = fc.record({
    harness: count,
    skills: count,
    instructions: count,
    toolDefinitions: count,
    messages: count,
  });
  fc.assert(
    fc.property(fc.nat({ max: 2_000_000 }), parts, (tokens, characters) => {
      const shares = breakDown(tokens, characters);
      expect(Object.values(shares).reduce((a, b) => a + b)).toBe(tokens);
      const all = Object.values(characters).reduce((a, b) => a + b);
      if (all === 0) return;
      for (const [name, share] of Object.entries(shares)) {
        const exact = (tokens * (characters[name as keyof typeof characters] ?? 0)) / all;
        expect(Math.abs(share - exact)).toBeLessThanOrEqual(1);
        if (exact === 0) expect(share).toBe(0);
      }
    }),
  );
});

test('without lengths, all tokens count as messages', () => {
  const nothing = { harness: 0, skills: 0, instructions: 0, toolDefinitions: 0, messages: 0 };
  expect(breakDown(7, nothing)).toEqual({ ...nothing, messages: 7 });
});
