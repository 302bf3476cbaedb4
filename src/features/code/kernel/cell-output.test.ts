import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { OutputPart } from '../../../core/output-parts.ts';
import { CellOutput } from './cell-output.ts';

let passed: OutputPart[];

beforeEach(() => {
  vi.useFakeTimers();
  passed = [];
});

afterEach(() => vi.useRealTimers());

function output(maxBytes = 1000): CellOutput {
  return new CellOutput(maxBytes, (part) => passed.push(part));
}

describe('CellOutput', () => {
  it('passes on what arrives within 0.1 s as one part', () => {
    const cell = output();
    cell.add('stdout', 'a');
    vi.advanceTimersByTime(60);
    cell.add('stdout', 'b');
    expect(passed).toEqual([]);
    vi.advanceTimersByTime(40);
    expect(passed).toEqual([{ channel: 'stdout', text: 'ab' }]);
    cell.add('stdout', 'c');
    expect(cell.end().parts).toEqual([{ channel: 'stdout', text: 'abc' }]);
    expect(passed).toHaveLength(2);
  });

  it('passes much on at once', () => {
    output(1_000_000).add('stdout', 'x'.repeat(65_536));
    expect(passed).toHaveLength(1);
  });

  it('keeps the order of channels', () => {
    const cell = output();
    cell.add('stdout', 'a');
    cell.add('stderr', 'b');
    cell.add('stdout', 'c');
    const parts = [
      { channel: 'stdout', text: 'a' },
      { channel: 'stderr', text: 'b' },
      { channel: 'stdout', text: 'c' },
    ];
    expect(cell.end().parts).toEqual(parts);
    expect(passed).toEqual(parts);
  });

  it('counts bytes and cuts between characters', () => {
    const cell = output(5);
    cell.add('stdout', 'aé');
    cell.add('stdout', 'é€');
    cell.add('stdout', 'z');
    cell.discard(10);
    expect(cell.end()).toEqual({
      parts: [{ channel: 'stdout', text: 'aéé' }],
      outputBytes: 19,
      discardedBytes: 14,
    });
  });

  it('adds nothing after a cut, even what would fit', () => {
    const cell = output(4);
    cell.add('stdout', 'abc€');
    cell.add('stdout', 'd');
    expect(cell.end()).toMatchObject({ parts: [{ channel: 'stdout', text: 'abc' }], discardedBytes: 4 });
  });

  it('removes escape sequences, also those that are cut', () => {
    const cell = output();
    for (const piece of ['\u001B[31mred\u001B', '[0m and \u001B[1', ';4mbold\u001B[0m']) cell.add('stdout', piece);
    cell.add('stderr', '\u001B]8;;https://example.com\u0007link\u001B]8;;\u0007');
    expect(cell.end().parts).toEqual([
      { channel: 'stdout', text: 'red and bold' },
      { channel: 'stderr', text: 'link' },
    ]);
  });

  it('replaces halves of characters', () => {
    const cell = output();
    cell.add('stdout', 'a\uD800b');
    expect(cell.end().parts).toEqual([{ channel: 'stdout', text: 'a\uFFFDb' }]);
  });
});
