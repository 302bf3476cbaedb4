import { fc } from '../../test/support/fast-check.ts';
import { expect, test } from 'vitest';
import { storedSections, textOf, type Section } from './sections.ts';
import {
  applyDelta,
  charactersOf,
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

const CALL = {
  id: 'a',
  name: 'look',
  arguments: '{"at":1}',
  info: { type: 'system' as const, name: 'look' },
  providerFields: { signature: 's' },
};
const START = { reasoning: 2, content: 3, toolCalls: 1 };
const SECTION: Section = { ...START, hosted: { type: 'call', id: 'h' }, citations: [{ source: 'x' }, { source: 'y' }] };
const WHOLE: MessageText = { content: 'abc', refusal: 'no', reasoning: 'why', toolCalls: [CALL], sections: [SECTION] };

test.each<[string, Partial<MessageText>]>([
  ['content that ends the same', { content: 'c' }],
  ['a refusal that ends the same', { refusal: 'o' }],
  ['another reasoning', { reasoning: 'whx' }],
  ['one more call', { toolCalls: [CALL, { ...CALL, id: 'b' }] }],
  ['another id of a call', { toolCalls: [{ ...CALL, id: 'b' }] }],
  ['another tool', { toolCalls: [{ ...CALL, name: 'see' }] }],
  ['arguments that end the same', { toolCalls: [{ ...CALL, arguments: '1}' }] }],
  ['other fields of the provider', { toolCalls: [{ ...CALL, providerFields: { signature: 't' } }] }],
  ['one more section', { sections: [SECTION, SECTION] }],
  ['a section after less reasoning', { sections: [{ ...SECTION, reasoning: 1 }] }],
  ['a section after less content', { sections: [{ ...SECTION, content: 1 }] }],
  ['a section after fewer calls', { sections: [{ ...SECTION, toolCalls: 0 }] }],
  ['another hosted part', { sections: [{ ...SECTION, hosted: { type: 'call', id: 'i' } }] }],
  ['results of a hosted call', { sections: [{ ...SECTION, hosted: { type: 'result', id: 'h', sources: [] } }] }],
  ['more citations', { sections: [{ ...SECTION, citations: [{ source: 'x' }, { source: 'y' }, { source: 'z' }] }] }],
])('a text with %s is no beginning', (_, other) => {
  expect(isBeginningOf({ ...WHOLE, ...other }, WHOLE)).toBe(false);
});

test('a beginning has less of each part, or nothing', () => {
  const less: MessageText = {
    content: 'a',
    refusal: 'n',
    reasoning: '',
    toolCalls: [{ ...CALL, arguments: '{"' }],
    sections: [{ ...START, hosted: { type: 'call', id: 'h', status: 'searching' }, citations: [{ source: 'x' }] }],
  };
  expect([less, emptyText(), WHOLE].map((text) => isBeginningOf(text, WHOLE))).toEqual([true, true, true]);
  const { sections: _, ...plain } = WHOLE;
  expect([isBeginningOf(plain, WHOLE), isBeginningOf(WHOLE, plain)]).toEqual([true, false]);
});

test('a text gains what its reader has not: a new call as a whole, of a known one the arguments and provider fields', () => {
  const second = { id: 'b', name: 'see', arguments: '', info: CALL.info };
  const had = lengthsOf({ ...WHOLE, toolCalls: [{ ...CALL, arguments: '{"at' }] });
  expect(gainedSince({ ...WHOLE, content: 'abcd', toolCalls: [CALL, second] }, had)).toStrictEqual({
    content: 'd',
    refusal: '',
    reasoning: '',
    toolCalls: [
      { index: 0, arguments: '":1}', providerFields: CALL.providerFields },
      { index: 1, ...second },
    ],
  });
  const nothing = { content: '', refusal: '', reasoning: '' };
  const { providerFields: _, ...plain } = CALL;
  const text = { ...WHOLE, toolCalls: [plain] };
  expect(gainedSince(text, lengthsOf(text))).toStrictEqual(nothing);
  expect(gainedSince({ ...text, toolCalls: [{ ...plain, arguments: '{"at":12}' }] }, lengthsOf(text))).toStrictEqual({
    ...nothing,
    toolCalls: [{ index: 0, arguments: '}' }],
  });
});

test('a section gains its citations, and its hosted part again if that is another', () => {
  const gained = (section: Section, had: Section) =>
    gainedSince({ ...WHOLE, sections: [section] }, lengthsOf({ ...WHOLE, sections: [had] })).sections;
  expect(gained(SECTION, { ...SECTION, citations: [{ source: 'x' }] })).toEqual([
    { index: 0, citations: [{ source: 'y' }] },
  ]);
  expect(gained(SECTION, { ...SECTION })).toBe(undefined);
  const completed = { ...SECTION, hosted: { type: 'call' as const, id: 'h', status: 'completed' as const } };
  expect(gained(completed, SECTION)).toStrictEqual([{ index: 0, hosted: completed.hosted }]);
  expect(gained({ ...SECTION, hosted: { type: 'call', id: 'h' } }, SECTION)).toBe(undefined);
  const results = (sources: string[]) => ({
    ...SECTION,
    hosted: { type: 'result' as const, id: 'h', sources: sources.map((one) => ({ url: one })) },
  });
  expect(gained(results(['a']), SECTION)).toStrictEqual([{ index: 0, hosted: results(['a']).hosted }]);
  // The results of a search are complete when they arrive.
  expect(gained(results(['a']), results([]))).toBe(undefined);
  expect(gained(SECTION, { ...SECTION, hosted: results([]).hosted })).toStrictEqual([
    { index: 0, hosted: SECTION.hosted },
  ]);
});

test('a text takes the characters of its parts, 500 for the head of a call, and 1', () => {
  expect([charactersOf({}), charactersOf(emptyText())]).toEqual([1, 1]);
  const { sections, ...plain } = WHOLE;
  expect(charactersOf(plain)).toBe(1 + 3 + 2 + 3 + 8 + 500);
  expect(charactersOf({ sections: sections ?? [] })).toBe(1 + JSON.stringify(sections).length);
  expect(charactersOf({ toolCalls: [{ arguments: 'ab' }, { id: 'b' }] })).toBe(1 + 2 + 500);
});

test('the first delta of a call has its id, its name and its tool, and the calls before it', () => {
  const head = { id: 'a', name: 'look', info: CALL.info };
  for (const wrong of [{ index: 1 }, { id: '' }, { name: '' }, { info: undefined as never }])
    expect(() => applyDelta(emptyText(), { toolCalls: [{ index: 0, ...head, ...wrong }] })).toThrow(
      'has no id, name or tool',
    );
  const text = emptyText();
  applyDelta(text, { toolCalls: [{ index: 0, ...head, providerFields: { a: 1 } }] });
  applyDelta(text, { toolCalls: [{ index: 0, providerFields: { b: 2 } }] });
  expect(text.toolCalls).toEqual([{ ...head, arguments: '', providerFields: { a: 1, b: 2 } }]);
});
