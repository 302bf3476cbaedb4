import { fc } from '../../test/support/fast-check.ts';
import { expect, test } from 'vitest';
import { storedSections, textOf, type Section } from './sections.ts';
import {
  applyDelta,
  emptyText,
  gainedSince,
  isBeginningOf,
  lengthsOf,
  splitDelta,
  textDeltas,
  type MessageText,
} from './message.ts';
import type { ModelMessage } from './records/message.ts';

const anyText = fc.string({
  maxLength: 300,
  unit: fc.constantFrom('a', '"', '\\', '\u0000', 'é', '漢', '😀', '\ud800'),
});

const url = fc.constantFrom('https://a.example', 'https://b.example');

const hosted = fc.oneof(
  fc.record({ type: fc.constant('call' as const), id: fc.uuid(), status: fc.constant('searching' as const) }),
  fc.record({
    type: fc.constant('result' as const),
    id: fc.uuid(),
    sources: fc.array(fc.record({ url: url, title: fc.string({ maxLength: 20 }) }), { maxLength: 2 }),
  }),
);

const section: fc.Arbitrary<Section> = fc.record(
  {
    reasoning: fc.nat(300),
    content: fc.nat(300),
    toolCalls: fc.nat(3),
    hosted,
    citations: fc.array(fc.record({ source: url, citedText: fc.string({ maxLength: 20 }) }), {
      minLength: 1,
      maxLength: 3,
    }),
  },
  { requiredKeys: ['reasoning', 'content', 'toolCalls'] },
);

const messageText: fc.Arbitrary<MessageText> = fc.record(
  {
    content: anyText,
    refusal: anyText,
    reasoning: anyText,
    toolCalls: fc.array(
      fc.record({
        id: fc.uuid(),
        name: fc.constant('look'),
        arguments: anyText,
        info: fc.constant({ type: 'system' as const, name: 'look' }),
      }),
      { maxLength: 3 },
    ),
    sections: fc.array(section, { minLength: 1, maxLength: 3 }),
  },
  { requiredKeys: ['content', 'refusal', 'reasoning', 'toolCalls'] },
);

test('a text that is cut into deltas folds to itself, and each delta fits', () => {
  fc.assert(
    fc.property(messageText, fc.integer({ min: 600, max: 2000 }), (text, maxBytes) => {
      const deltas = textDeltas(text, maxBytes);
      const folded: MessageText = emptyText();
      for (const delta of deltas) {
        applyDelta(folded, delta);
        expect(Buffer.byteLength(JSON.stringify(delta))).toBeLessThanOrEqual(maxBytes);
      }
      expect(folded).toEqual(text);
      const { sections, ...rest } = text;
      const message: ModelMessage = {
        ...rest,
        ...storedSections(sections),
        toolCalls: text.toolCalls.map((call) => ({ ...call, route: { to: 'client' } })),
        kind: 'model.message',
        id: 'm',
        at: '',
        threadId: 'main',
        finishReason: 'stop',
      };
      expect(isBeginningOf(folded, textOf(message))).toBe(true);
      expect(isBeginningOf({ ...folded, content: `${message.content}x` }, textOf(message))).toBe(false);
    }),
  );
});

test('a beginning and what it lacks give the message; any other text is no beginning', () => {
  fc.assert(
    fc.property(messageText, fc.integer({ min: 600, max: 900 }), fc.nat(5), (text, maxBytes, received) => {
      const held = emptyText();
      for (const delta of textDeltas(text, maxBytes).slice(0, received)) applyDelta(held, delta);
      expect(isBeginningOf(held, text)).toBe(true);
      for (const delta of splitDelta(gainedSince(text, lengthsOf(held)), maxBytes)) applyDelta(held, delta);
      expect(held).toEqual(text);
      const [call] = held.toolCalls;
      if (call) expect(isBeginningOf({ ...held, toolCalls: [{ ...call, id: 'another' }] }, text)).toBe(false);
    }),
  );
});

test('a replay uses as few deltas as fit', () => {
  const text = { ...emptyText(), content: 'x'.repeat(1_200_000) };
  expect(textDeltas(text, 512 * 1024).length).toBe(3);
  expect(textDeltas({ ...emptyText(), content: 'hello', reasoning: 'well' }, 512 * 1024)).toEqual([
    { reasoning: 'well', content: 'hello' },
  ]);
  expect(textDeltas(emptyText(), 512 * 1024)).toEqual([]);
});
