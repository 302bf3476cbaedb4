import { expect, test } from 'vitest';
import { messageWith, modelMessage } from '../../test/support/model-message.ts';
import {
  applySections,
  FIRST_SECTION,
  keptSections,
  orderedParts,
  storedSections,
  textOf,
  type Section,
} from './sections.ts';

const call = { type: 'call' as const, id: 'search_1' };
const citation = { source: 'page' };

test('deltas add citations to a section, and replace its hosted part', () => {
  const sections: Section[] = [];
  const second = { reasoning: 1, content: 2, toolCalls: 0 };
  applySections(sections, [
    { index: 0, start: FIRST_SECTION, hosted: call },
    { index: 0, citations: [citation] },
    { index: 1, start: second },
    { index: 0, hosted: { ...call, status: 'completed' }, citations: [{ source: 'other' }] },
  ]);
  const citations = [citation, { source: 'other' }];
  expect(sections).toStrictEqual([{ ...FIRST_SECTION, hosted: { ...call, status: 'completed' }, citations }, second]);
});

test('a section cannot begin without its start, or before the one that precedes it', () => {
  expect(() => applySections([], [{ index: 0, hosted: call }])).toThrow('has no start');
  expect(() => applySections([], [{ index: 1, start: FIRST_SECTION }])).toThrow('has no start');
});

test('the parts of a section are its hosted part, its reasoning, its text and its calls', () => {
  const { toolCalls } = messageWith({ to: 'client' }, { to: 'client' }, { to: 'client' });
  const text = { reasoning: 'abc', content: 'wxyz', toolCalls };
  const whole = [
    { type: 'reasoning', section: 0, from: 0, to: 3, citations: [] },
    { type: 'content', section: 0, from: 0, to: 4, citations: [] },
    ...[0, 1, 2].map((index) => ({ type: 'call', index })),
  ];
  expect(orderedParts(text)).toEqual(whole);
  expect(orderedParts({ ...text, sections: [] })).toEqual(whole);
  const sections: Section[] = [
    { ...FIRST_SECTION, citations: [citation] },
    { reasoning: 3, content: 1, toolCalls: 2, hosted: call, citations: [citation] },
  ];
  expect(orderedParts({ ...text, sections })).toEqual([
    { type: 'reasoning', section: 0, from: 0, to: 3, citations: [] },
    { type: 'content', section: 0, from: 0, to: 1, citations: [citation] },
    { type: 'call', index: 0 },
    { type: 'call', index: 1 },
    { type: 'hosted', section: 1, hosted: call },
    { type: 'content', section: 1, from: 1, to: 4, citations: [citation] },
    { type: 'call', index: 2 },
  ]);
});

test('a message with some of its calls has as many of them before each section', () => {
  const { toolCalls } = messageWith({ to: 'client' }, { to: 'client' }, { to: 'client' });
  const sections = [0, 1, 2, 3].map((count) => ({ ...FIRST_SECTION, toolCalls: count }));
  const text = { content: '', refusal: '', reasoning: '', toolCalls };
  const counts = (kept: string[]) => keptSections({ ...text, sections }, new Set(kept)).map((one) => one.toolCalls);
  expect([counts(['call_0', 'call_2']), counts(['call_1'])]).toEqual([
    [0, 1, 1, 2],
    [0, 0, 1, 1],
  ]);
  expect(keptSections(text, new Set())).toEqual([]);
});

test('a record has its sections as one text, and none if it has no more than one', () => {
  const sections: Section[] = [{ ...FIRST_SECTION, hosted: call }];
  const text = { content: 'a', refusal: '', reasoning: '', toolCalls: [] };
  expect(textOf(modelMessage({ content: 'a', ...storedSections(sections) }))).toEqual({ ...text, sections });
  expect([storedSections([]), storedSections()]).toStrictEqual([{}, {}]);
  expect(textOf(modelMessage({ content: 'a' }))).toStrictEqual(text);
});
