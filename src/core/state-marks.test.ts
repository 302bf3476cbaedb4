import { expect, test } from 'vitest';
import type { LogRecord } from './records.ts';
import { stateMarks } from './state-marks.ts';

function marks(...records: [kind: LogRecord['kind'], second: number, more?: object][]): number[] {
  const entries = records.map(([kind, second, more], i) => {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the parts that are read
    const record = { kind, at: `2026-11-02T10:00:0${second}.000Z`, ...more } as unknown as LogRecord;
    return { ordinal: i + 1, record };
  });
  return stateMarks(entries);
}

test('a turn has marks where it begins, waits, works again and ends', () => {
  expect(
    marks(
      ['turn.created', 0],
      ['model.message', 1],
      ['turn.paused', 2, { reason: 'requested' }],
      ['turn.resumed', 3, { reason: 'requested' }],
      ['tool.response', 4, { outcome: 'succeeded' }],
      ['model.message', 5],
      ['turn.done', 6],
    ),
  ).toEqual([1, 3, 4, 7]);
});

test('what one task records has one mark, at its end', () => {
  const by = { subjectId: 'ann' };
  expect(
    marks(
      ['turn.created', 1],
      ['tool.response_required', 1],
      ['turn.paused', 1, { reason: 'action' }],
      ['tool.response', 2, { outcome: 'succeeded', by }],
      ['tool.response', 2, { outcome: 'succeeded', by }],
      ['turn.resumed', 2, { reason: 'action' }],
      ['turn.done', 2],
    ),
  ).toEqual([1, 3, 6, 7]);
  // The pause was requested during the model call whose message requires the response.
  expect(marks(['model.message', 4], ['tool.response_required', 4], ['turn.paused', 2])).toEqual([3]);
});
