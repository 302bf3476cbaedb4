import { fc } from '../../test/support/fast-check.ts';
import { expect, test } from 'vitest';
import { cursorAfter, expectRising, fold } from '../../test/support/central-property.ts';
import { cases } from '../../test/support/seed.ts';
import { appendPart, lengthOf, OUTPUT_CHANNELS, type OutputPart } from '../core/output-parts.ts';
import type { LogEntry } from '../core/records/log.ts';
import { withoutOutput } from '../core/records/sandbox.ts';
import { NO_TOTALS } from '../core/turn-totals.ts';
import { MAX_OUTPUT_CHARACTERS, MAX_OUTPUT_PARTS, type LiveOutput } from './bus.ts';
import { LiveOutputs } from './live-outputs.ts';
import { StreamSequencer, type NumberedFrame } from './stream-sequencer.ts';
import { TurnFeed } from './turn-feed.ts';

const AT = '2026-11-30T08:00:00.000Z';
const ID = 'evt_1';
const CALL = { threadId: 'main', toolCallId: 'call_1' };

function piece(from: number, text: string, more: Partial<LiveOutput> = {}): LiveOutput {
  const place = { turnId: 'turn_1', ...CALL, id: ID, after: 1, attempt: 1 };
  return { ...place, from, parts: [{ channel: 'stdout', text }], ...more };
}

const message: LogEntry = {
  ordinal: 1,
  record: {
    kind: 'thread.done',
    id: 'evt_0',
    at: AT,
    threadId: 'x',
    title: '',
    parent: CALL,
    end: { status: 'error', message: 'x' },
  },
};

function result(ordinal: number): LogEntry {
  const execution = withoutOutput('ok');
  const record = {
    kind: 'tool.response',
    id: ID,
    at: AT,
    ...CALL,
    outcome: 'succeeded',
    content: 'all',
    execution,
  } as const;
  return { ordinal, record };
}

function reader(feed: TurnFeed, frames: NumberedFrame[] = []): NumberedFrame[] {
  feed.join(new StreamSequencer(cursorAfter(frames)), (sent) => frames.push(...sent));
  return frames;
}

const textOf = (frames: NumberedFrame[]): string | undefined => fold(frames).outputs.get(ID);

test('every cut of an output, resumed at any time, folds to it, until its result replaces it', () => {
  const part = fc.record({
    channel: fc.constantFrom(...OUTPUT_CHANNELS),
    text: fc.string({ minLength: 1, unit: 'binary' }),
  });
  const fault = fc.constantFrom('deliver', 'deliver', 'drop', 'duplicate', 'whole');
  fc.assert(
    fc.property(fc.array(fc.tuple(part, fault), { minLength: 1 }), fc.nat(20), (pieces, cut) => {
      const feed = new TurnFeed();
      feed.entry(message);
      const [uncut, frames]: NumberedFrame[][] = [reader(feed), []];
      let isCut = false;
      feed.join(new StreamSequencer(cursorAfter([])), (sent) => {
        if (!isCut) frames?.push(...sent.slice(0, cut - frames.length));
        isCut ||= frames?.length === cut;
      });
      const all: OutputPart[] = [];
      const whole = (): LiveOutput => piece(0, '', { parts: structuredClone(all) });
      for (const [one, how] of pieces) {
        const next = piece(lengthOf(all), '', { parts: [one] });
        appendPart(all, one);
        if (how === 'whole') feed.output(whole());
        else if (how !== 'drop' && !feed.output(next)) feed.output(whole());
        if (how === 'duplicate') feed.output(next);
      }
      feed.output(whole());
      const expected = all.map(({ text }) => text).join('');
      expect(textOf(uncut ?? [])).toBe(expected);
      isCut = true;
      expect(textOf(reader(feed, frames))).toBe(expected);
      feed.entry(result(2));
      for (const each of [uncut ?? [], frames ?? []]) {
        expect(fold(each).outputs.size).toBe(0);
        expectRising(each);
      }
    }),
    { numRuns: cases(200) },
  );
});

test('a piece after a missing one changes nothing, and the whole output fills the gap', () => {
  const outputs = new LiveOutputs();
  expect([outputs.add(piece(0, 'ab')), outputs.add(piece(4, 'ef')), outputs.add(piece(1, 'b'))]).toEqual([
    'grown',
    'gap',
    'none',
  ]);
  expect(outputs.add(piece(0, 'abcd'))).toBe('grown');
  expect(outputs.whole()).toEqual([piece(0, 'abcd')]);
});

test('a later attempt supersedes the output of a lost one, also for its readers', () => {
  const feed = new TurnFeed();
  feed.entry(message);
  const frames = reader(feed);
  feed.output(piece(0, 'lost', { attempt: 1 }));
  feed.output(piece(0, 'new', { attempt: 2 }));
  feed.output(piece(0, 'lost, and late', { attempt: 1 }));
  expect(textOf(frames)).toBe('new');
  expect(textOf(reader(feed))).toBe('new');
});

test('readers are sent an output after the records that it follows, and nothing of it after its result or the end', () => {
  const feed = new TurnFeed();
  const frames = reader(feed);
  feed.output(piece(0, 'early'));
  expect(frames).toEqual([]);
  feed.entry(message);
  expect(frames.map(({ frame }) => frame.kind)).toEqual(['record', 'output']);
  feed.entry(result(2));
  feed.output(piece(0, 'early, and late'));
  feed.output(piece(0, 'another', { id: 'evt_2', toolCallId: 'call_2' }));
  const end = { status: 'cancelled', reason: 'client-cancelled' } as const;
  feed.entry({
    ordinal: 3,
    record: { kind: 'turn.done', id: 'evt_3', at: AT, end, ...NO_TOTALS, waitedMs: 0, workedMs: 0 },
  });
  feed.output(piece(0, 'another one', { id: 'evt_2', toolCallId: 'call_2' }));
  expect(frames.map(({ frame }) => frame.kind)).toEqual(['record', 'output', 'record', 'output', 'record']);
  expect(reader(feed).at(-1)?.frame).toMatchObject({ kind: 'record', record: { kind: 'turn.done' } });
});

test('an output is kept up to a bound, in characters and in parts', () => {
  const outputs = new LiveOutputs();
  outputs.add(piece(0, 'x'.repeat(MAX_OUTPUT_CHARACTERS)));
  expect(outputs.add(piece(MAX_OUTPUT_CHARACTERS, 'y'))).toBe('none');
  const channels = ['stdout', 'stderr'] as const;
  for (let i = 0; i < 2 * MAX_OUTPUT_PARTS; i++) {
    const parts = [{ channel: channels[i % 2] ?? 'stdout', text: 'z' }];
    outputs.add(piece(i, '', { id: 'evt_2', parts }));
  }
  expect(outputs.whole().map(({ parts }) => parts.length)).toEqual([1, MAX_OUTPUT_PARTS]);
  expect(outputs.characters).toBe(MAX_OUTPUT_CHARACTERS + MAX_OUTPUT_PARTS);
});
