import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { lengthOf } from '../../../core/output-parts.ts';
import { InProcessBus } from '../../../live/in-process-bus.ts';
import { BusTap } from '../../../../test/support/bus-tap.ts';
import { PublishedOutput } from './published-output.ts';

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

function published(maxBytes: number) {
  const bus = new InProcessBus();
  const call = { threadId: 'main', toolCallId: 'call_1', attempt: 1 };
  const output = new PublishedOutput({ bus, call, maxBytes }, { turnId: 'turn_1', id: 'evt_1', after: 3 });
  return { bus, output, tap: new BusTap(bus, 'turn_1') };
}

const textOf = ({ outputs }: BusTap): string => outputs.flatMap(({ parts }) => parts.map(({ text }) => text)).join('');

test('a flood is ten messages a second, and no more than the result keeps', () => {
  const { output, tap } = published(1_000);
  for (let ms = 0; ms < 1_000; ms++) {
    output.add({ channel: ms % 2 === 0 ? 'stdout' : 'stderr', text: 'é' });
    if (ms === 400) expect(tap.outputs).toHaveLength(5);
    vi.advanceTimersByTime(1);
  }
  for (let i = 0; i < 1_000; i++) output.add({ channel: 'stdout', text: 'x'.repeat(1_000) });
  output.end();
  expect(tap.outputs.length).toBeLessThanOrEqual(11);
  expect(textOf(tap)).toBe(`${'é'.repeat(500)}\n[everturn] the rest comes with the result\n`);
});

test('an output that changes its channel without end is bounded as well', () => {
  const { output, tap } = published(1_000_000);
  for (let i = 0; i < 10_000; i++) output.add({ channel: i % 2 === 0 ? 'stdout' : 'stderr', text: 'x' });
  output.end();
  expect(tap.outputs.flatMap(({ parts }) => parts).length).toBeLessThan(1_010);
});

test('a reader of the next turn is sent what the code has written before, and the bus keeps it until the end', () => {
  const { bus, output, tap } = published(1_000);
  output.add({ channel: 'stdout', text: 'before' });
  const next = new BusTap(bus, 'turn_2');
  output.resumeIn({ turnId: 'turn_2', id: 'evt_2', after: 1 });
  output.add({ channel: 'stdout', text: ' and after' });
  vi.advanceTimersByTime(100);
  expect(next.outputs.map(({ from, parts }) => [from, lengthOf(parts)])).toEqual([
    [0, 6],
    [6, 10],
  ]);
  for (const [one, held] of [
    [tap, 0],
    [next, 1],
  ] as const) {
    one.outputs.length = 0;
    bus.requestSnapshots(one === tap ? 'turn_1' : 'turn_2');
    expect(one.outputs).toHaveLength(held);
  }
  output.end();
  next.outputs.length = 0;
  bus.requestSnapshots('turn_2');
  expect(next.outputs).toEqual([]);
});
