import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { ToolCall } from '../../../core/records/calls.ts';
import type { ModelMessage } from '../../../core/records/message.ts';
import { messageOfCode } from './code-thread-records.ts';
import { Piece } from './piece.ts';

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

const NOW = Date.parse('2026-01-01T00:00:00Z');

function message(calls: number, args = '{}'): ModelMessage {
  const info = { type: 'mcp', serverId: 's', serverName: 's', name: 'note' } as const;
  const toolCalls = Array.from({ length: calls }, (_, n): ToolCall => {
    return { id: `call_${n}`, name: 'note', arguments: args, info, route: { to: 'answered', ran: true } };
  });
  return messageOfCode({ id: 'm', at: '', threadId: 't', content: '', toolCalls, finishReason: 'tool_calls' });
}

/** Whether the piece has ended, although its code still runs. */
async function isOver(piece: Piece): Promise<boolean> {
  const over = piece.over.then(() => true);
  return Promise.race([over, Promise.resolve(false).then((none) => none)]);
}

test('a piece ends after 50 calls', async () => {
  const piece = new Piece(new AbortController().signal);
  for (let i = 0; i < 49; i++) piece.add([message(1)]);
  expect([await isOver(piece), piece.mayCall]).toEqual([false, true]);
  piece.add([message(1)]);
  expect([await isOver(piece), piece.mayCall]).toEqual([true, false]);
  expect(piece.records).toHaveLength(50);
});

test('a piece ends when its records are large', async () => {
  const piece = new Piece(new AbortController().signal);
  piece.add([message(1, 'x'.repeat(50_000))]);
  expect(await isOver(piece)).toBe(false);
  piece.add([message(1, 'x'.repeat(50_000))]);
  expect(await isOver(piece)).toBe(true);
});

test('a piece ends 4 s after its first call, and what it runs then is aborted a second later', async () => {
  const piece = new Piece(new AbortController().signal);
  vi.advanceTimersByTime(60_000);
  piece.begin();
  vi.advanceTimersByTime(3_000);
  piece.begin();
  expect([await isOver(piece), piece.mayCall]).toEqual([false, true]);
  vi.advanceTimersByTime(1_000);
  expect([await isOver(piece), piece.mayCall, piece.ending.aborted]).toEqual([true, false, false]);
  vi.advanceTimersByTime(1_000);
  expect(piece.ending.aborted).toBe(true);
});

test('code that is ended ends with its piece', async () => {
  const stop = new AbortController();
  const piece = new Piece(stop.signal);
  piece.begin();
  stop.abort();
  expect([piece.ending.aborted, piece.mayCall]).toEqual([true, false]);
  piece.add([message(50)]);
  vi.advanceTimersByTime(5_000);
  expect(await isOver(piece)).toBe(false);
});

test('no call begins when the time of the budget is used up', () => {
  vi.setSystemTime(NOW);
  const piece = new Piece(new AbortController().signal, NOW + 1_000);
  expect(piece.mayCall).toBe(true);
  vi.setSystemTime(NOW + 1_000);
  expect(piece.mayCall).toBe(false);
});

test('records have to fit beside those of the piece, but for texts that can be moved into the blob store', () => {
  const piece = new Piece(new AbortController().signal);
  const [long, short] = [message(1, 'x'.repeat(200_000)), message(30, 'x'.repeat(1_000))];
  expect([piece.fits([long]), piece.fits([short]), piece.fits([short, short, short])]).toEqual([true, true, false]);
  piece.add([short]);
  piece.add([short]);
  expect([piece.fits([long]), piece.fits([short])]).toEqual([true, false]);
});
