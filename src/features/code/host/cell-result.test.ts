import { expect, test } from 'vitest';
import type { CellEnd } from '../kernel/running-cell.ts';
import { cellResult, displayFiles, kernelEvents, previewOf } from './cell-result.ts';
import type { RanCell } from './thread-kernel.ts';

const STARTED = new Date('2026-11-28T08:00:00.000Z');

function cellEnd(fields: Partial<CellEnd> = {}): CellEnd {
  return {
    exit: 'ok',
    parts: [],
    outputBytes: 0,
    discardedBytes: 0,
    displays: [],
    toolCalls: 0,
    commands: 0,
    defined: [],
    names: [],
    nameCount: 0,
    notices: [],
    startedAt: STARTED,
    durationMs: 12,
    ...fields,
  };
}

/** The result of a cell of generation 1. */
function resultOf(fields: Partial<CellEnd>, { isCancelled = false } = {}) {
  const cell = cellEnd(fields);
  const files = displayFiles(cell, 'call_1');
  return cellResult({ generation: 1, end: { exit: cell.exit, cell } }, { files, isCancelled });
}

test('output, traceback, displays and notices, in this order', () => {
  const { text, outcome, execution } = resultOf({
    exit: 'error',
    error: { name: 'ValueError', message: 'no' },
    parts: [
      { channel: 'stdout', text: 'one\n' },
      { channel: 'error', text: 'Traceback\nValueError: no\n' },
      { channel: 'stderr', text: 'two\n\n' },
    ],
    displays: [
      { mediaType: 'image/png', data: Buffer.from('p') },
      { mediaType: 'text/html', data: Buffer.from('h') },
    ],
    notices: ['cwd reset to /workspace'],
  });
  expect(text.split('\n')).toEqual([
    'one',
    'two',
    'Traceback',
    'ValueError: no',
    '![call_1-1.png](images/call_1-1.png)',
    '[call_1-2.html](outputs/call_1-2.html)',
    '[everturn] cwd reset to /workspace',
  ]);
  expect(outcome).toBe('failed');
  expect(execution).toMatchObject({ generation: 1, exit: 'error', startedAt: STARTED.toISOString(), durationMs: 12 });
});

test('a cell without output has an empty result', () => {
  expect(resultOf({})).toMatchObject({ text: '', outcome: 'succeeded' });
});

test.each<[Partial<CellEnd>, boolean, string, string]>([
  [
    { exit: 'timeout', notices: ['time limit of 2 s reached'] },
    false,
    'failed',
    '[everturn] time limit of 2 s reached',
  ],
  [{ exit: 'ok' }, true, 'succeeded', ''],
  [{ exit: 'interrupted' }, true, 'cancelled', ''],
  [{ exit: 'interrupted' }, false, 'failed', ''],
  [
    { exit: 'died', kernelEnd: { reason: 'out_of_memory', detail: '' }, names: ['a', 'b'], nameCount: 2 },
    false,
    'failed',
    '[everturn] the kernel has ended (out_of_memory); lost: a, b',
  ],
  [
    { exit: 'died', kernelEnd: { reason: 'died', detail: '' } },
    false,
    'failed',
    '[everturn] the kernel has ended (died); it had no variables',
  ],
])('%j, cancelled: %s', (fields, isCancelled, outcome, text) => {
  expect(resultOf(fields, { isCancelled })).toMatchObject({ outcome, text });
});

test('a stale cell names what is lost, and at most 20 names', () => {
  const lost = Array.from({ length: 25 }, (_, i) => `v${i}`);
  const ran: RanCell = { generation: 2, end: { exit: 'stale', reason: 'idle', lost, lostCount: 30 } };
  const { text, outcome, execution } = cellResult(ran, { files: [], isCancelled: false });
  expect(text).toMatch(/^\[everturn\] none of this code was executed: .*\(idle\).*: v0, .*v19 and 10 more\. /);
  expect([outcome, execution.exit, execution.generation]).toEqual(['failed', 'stale', 2]);
});

test('restored and lost variables are named: by a cell that runs, one that is stale, and one that ends its kernel', () => {
  const restored = { names: ['a', 'b'], count: 2 };
  const as = 'as they were after the last cell that has succeeded';
  const restart = { reason: 'idle', restored, lost: [], lostCount: 0 } as const;
  const textOf = (end: RanCell['end']) => cellResult({ generation: 2, end }, { files: [], isCancelled: false }).text;
  const cell = cellEnd({ notices: ['cwd reset'] });
  expect(textOf({ exit: 'ok', cell, restart: { ...restart, lost: [] } })).toBe(
    `[everturn] the kernel was restarted (idle), and variables were restored ${as}: a, b\n[everturn] cwd reset`,
  );
  const stale = { exit: 'stale', ...restart, lost: ['c'], lostCount: 1 } as const;
  expect(textOf({ ...stale, lost: ['c'] })).toContain(`used, and variables were restored ${as}: a, b; lost: c. Define`);
  expect(textOf({ ...stale, lost: ['c'], restored: { names: [], count: 0 } })).toContain(
    'used, and no variable was restored; lost: c.',
  );
  const dead = cellEnd({ exit: 'died', kernelEnd: { reason: 'died', detail: '' }, names: ['a', 'c'], nameCount: 2 });
  const stored = { others: ['c'], otherCount: 1 };
  const ended = `[everturn] the kernel has ended (died); the next one begins with the variables ${as}`;
  expect(textOf({ exit: 'died', cell: dead, stored })).toBe(`${ended}; lost: c`);
  expect(textOf({ exit: 'died', cell: dead, stored: { others: [], otherCount: 0 } })).toBe(ended);
});

test('a cell without a kernel says why, or that it was cancelled before', () => {
  const ran: RanCell = { generation: 0, end: { exit: 'not_started', reason: 'all are busy' } };
  const options = { files: [] };
  expect(cellResult(ran, { ...options, isCancelled: false })).toMatchObject({
    outcome: 'failed',
    text: '[everturn] the code was not executed: all are busy',
    execution: { exit: 'not_started' },
  });
  expect(cellResult(ran, { ...options, isCancelled: true }).outcome).toBe('cancelled');
});

test('the id of a call cannot lead out of the folder of its files', () => {
  const cell = cellEnd({ displays: [{ mediaType: 'image/png', data: Buffer.from('p') }] });
  expect(displayFiles(cell, '../../etc/x y').map(({ path }) => path)).toEqual(['images/______etc_x_y-1.png']);
  expect(displayFiles(cell, '').map(({ path }) => path)).toEqual(['images/call-1.png']);
});

test('a long text has its head and its tail, without half of a character', () => {
  const text = `${'a'.repeat(3)}😀${'b'.repeat(50)}😀${'c'.repeat(3)}`;
  const preview = previewOf(text, { characters: 4, file: 'x.txt' });
  expect(preview.isWellFormed()).toBe(true);
  expect(preview).toMatch(/^aaa.*\n\[everturn\] cut: 64 bytes in all; the whole is in x\.txt\n.*ccc$/u);
  expect(previewOf(text, { characters: 0, file: undefined })).toBe('[everturn] cut: 64 bytes in all');
});

test('a kernel that was started for a cell is an event before its result', () => {
  const about = { sandboxId: 'sbx_1', threadId: 'main', python: '3.12.4', at: STARTED.toISOString() };
  const end: RanCell['end'] = { exit: 'not_started', reason: '' };
  const event = { kind: 'feature.event', at: about.at, threadId: 'main', isHidden: true };
  expect(kernelEvents({ generation: 1, end }, about)).toEqual([]);
  expect(kernelEvents({ generation: 1, begun: { generation: 1 }, end }, about)).toEqual([
    { ...event, type: 'kernel.started', data: { sandbox_id: 'sbx_1', generation: 1, python: '3.12.4' } },
  ]);
  const begun = { generation: 3, previousGeneration: 2, reason: 'died', lost: ['x'], lostCount: 1 } as const;
  const restored = { names: ['y'], count: 1 };
  const data = { previous_generation: 2, reason: 'died', restored: ['y'], lost: ['x'], lost_count: 1 };
  expect(kernelEvents({ generation: 3, begun: { ...begun, lost: ['x'], restored }, end }, about)).toEqual([
    { ...event, type: 'kernel.restarted', data: { sandbox_id: 'sbx_1', generation: 3, ...data } },
  ]);
});
