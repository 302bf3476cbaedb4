import { expect, test } from 'vitest';
import { foundTools } from './merge-found-tools.ts';
import type { UnplacedRecord } from './records.ts';

function found(names: string[], threadId = 'main'): UnplacedRecord {
  return {
    kind: 'tool.response',
    at: '',
    threadId,
    toolCallId: 'c',
    outcome: 'succeeded',
    content: '',
    foundTools: names.map((name) => ({ server: 's', name })),
  };
}

function namesOf(records: UnplacedRecord[]): string[] {
  return foundTools(records, 'main').map(({ name }) => name);
}

test('what a thread has found stays found, each once and in its place, and is of no concern to others', () => {
  expect(namesOf([])).toEqual([]);
  expect(namesOf([found(['a', 'b']), found(['z'], 'other'), found(['c', 'a'])])).toEqual(['a', 'b', 'c']);
});

test('of very many the last ones stay', () => {
  const names = Array.from({ length: 70 }, (_, i) => `t${i}`);
  expect(namesOf([found(names)])).toEqual(names.slice(-64));
  // One that was dropped can be found again.
  expect(namesOf([found(names), found(['t0'])])).toEqual([...names.slice(-63), 't0']);
});
