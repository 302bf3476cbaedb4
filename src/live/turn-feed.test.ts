import { pino } from 'pino';
import { expect, onTestFinished, test, vi } from 'vitest';
import { cursorAfter, expectRising, fold } from '../../test/support/central-property.ts';
import { turnStart } from '../../test/support/random-turn.ts';
import type { Cursor } from '../core/cursor.ts';
import { emptyText } from '../core/message.ts';
import type { LogEntry, LogRecord } from '../core/records/log.ts';
import type { ModelMessage } from '../core/records/message.ts';
import type { McpInitialized } from '../core/records/servers.ts';
import { turnCreated } from '../core/turn.ts';
import { NO_TOTALS } from '../core/turn-totals.ts';
import type { TurnLogReader } from '../engine/turn-log-reader.ts';
import { frameToWire } from '../api/sessions/turn-event-reader.ts';
import { toWire } from '../api/sessions/wire/events-to-wire.ts';
import { MAX_LIVE_CHARACTERS, type LiveFrame } from './bus.ts';
import { FeedBudget } from './feed-budget.ts';
import { InProcessBus } from './in-process-bus.ts';
import { TurnFeed } from './turn-feed.ts';
import { StreamSequencer, type NumberedFrame } from './stream-sequencer.ts';
import { TurnTail } from './turn-tail.ts';
import { OWNER } from '../../test/support/readers.ts';

const AT = '2026-11-22T08:00:00.000Z';

const frame = (n: number, content: string, overrides: Partial<LiveFrame> = {}): LiveFrame => ({
  turnId: 'turn_1',
  threadId: 'main',
  messageId: 'msg_1',
  createdAt: AT,
  after: 0,
  attempt: 1,
  n,
  delta: { content },
  ...overrides,
});

function message(ordinal: number, content: string, overrides: Partial<ModelMessage> = {}): LogEntry {
  const id = `msg_${ordinal}`;
  const rest = { ...emptyText(), toolCalls: [], finishReason: 'stop' as const };
  return { ordinal, record: { kind: 'model.message', id, at: AT, threadId: 'main', ...rest, content, ...overrides } };
}

/** Connects at the client's cursor, as an API does, and returns the frames that the connection sends immediately. */
function resume(feed: TurnFeed, frames: NumberedFrame[]): NumberedFrame[] {
  const sent: NumberedFrame[] = [];
  const reader = new StreamSequencer(cursorAfter(frames));
  feed.join(reader, (more) => sent.push(...more));
  feed.leave(reader);
  return sent;
}

function contentOf(frames: NumberedFrame[]): string {
  const [event] = fold(frames).events;
  return event?.type === 'model.message' ? event.content : '';
}

/** The stream as clients see it. */
function eventsOf(frames: NumberedFrame[]) {
  return frames.map(({ sequenceNumber, frame }) => ({ sequenceNumber, event: frameToWire(frame, OWNER) }));
}

const bytesOf = (frames: NumberedFrame[]): number => Buffer.byteLength(JSON.stringify(eventsOf(frames)));

/** A tail of a turn whose log is archived up to `from` and has `entries` from there on. */
function tailFrom(from: Promise<number>, bus: InProcessBus, entries: LogEntry[]) {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the methods that a tail calls
  const logs = {
    firstUnarchived: () => from,
    read: async function* () {
      yield entries;
      await new Promise(() => undefined);
    },
  } as unknown as TurnLogReader;
  return new TurnTail({ turnId: 'turn_1', logs, bus, log: pino({ level: 'silent' }), budget: new FeedBudget() });
}

test('frames of a message from before the current run, sent by a worker that resumes, reach no reader', async () => {
  const bus = new InProcessBus();
  const zombie = { messageId: 'msg_13', after: 12 };
  bus.publish(frame(0, 'old ', zombie));
  const from = Promise.withResolvers<number>();
  const tail = tailFrom(from.promise, bus, [message(401, 'first of this run')]);
  void tail.run();
  bus.publish(frame(1, 'before the feed is ready ', zombie));
  from.resolve(401);
  await tail.ready;
  expect(await tail.reaches(401, 10_000)).toBe(true);
  const frames: NumberedFrame[] = [];
  tail.feed.join(new StreamSequencer({ ordinal: 400, frame: 0 }), (sent) => frames.push(...sent));
  bus.publish(frame(2, 'text', zombie));
  bus.publish(frame(7, 'behind a gap', zombie)); // requests a snapshot, and gets one
  bus.publish(frame(0, 'new', { messageId: 'msg_402', after: 401 }));
  const events = eventsOf(frames).map(({ event }) => event);
  expect(events.map(({ id }) => id)).not.toContain('msg_13');
  expect(events.at(-1)).toMatchObject({ id: 'msg_402', content: 'new' });
  tail.stop();
});

test('the log of a turn that this process has started is read from its second entry on', async () => {
  const created = turnCreated(turnStart());
  const reads: (number | undefined)[] = [];
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the method that the tail calls
  const logs = {
    read: async function* (_turnId: string, { from }: { from?: number }) {
      reads.push(from);
      yield await Promise.resolve([message(2, 'hello')]);
    },
  } as unknown as TurnLogReader;
  const bus = new InProcessBus();
  const tail = new TurnTail({ turnId: 'turn_1', logs, bus, log: pino({ level: 'silent' }), budget: new FeedBudget() });
  const running = tail.run(created);
  // Without waiting for the log.
  expect(tail.feed.entries(1)).toEqual([{ ordinal: 1, record: created }]);
  await running;
  expect(reads).toEqual([2]);
  expect(tail.feed.entries(1).map(({ ordinal }) => ordinal)).toEqual([1, 2]);
  expect(tail.failure).toBeUndefined();
});

test('the log is read at a hint that it grows, but not at one of another turn', async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  let reads = 0;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the method that the tail calls
  const logs = {
    read: async function* () {
      reads += 1;
      yield await Promise.resolve([message(2, 'hello')]);
    },
  } as unknown as TurnLogReader;
  const bus = new InProcessBus();
  const tail = new TurnTail({ turnId: 'turn_1', logs, bus, log: pino({ level: 'silent' }), budget: new FeedBudget() });
  const running = tail.run(turnCreated(turnStart()));
  // Without a hint it is read a second later.
  for (const turnId of ['turn_2', 'turn_1']) {
    expect(reads).toBe(0);
    bus.hint(`growth:${turnId}`);
    await vi.advanceTimersByTimeAsync(100);
  }
  expect(reads).toBe(1);
  await running;
});

test('a client that gets one event per connection has the text so far with each, and gets past the message', () => {
  const feed = new TurnFeed();
  const frames: NumberedFrame[] = [];
  let text = '';
  for (let n = 0; n < 30; n++) {
    feed.frame(frame(n, `word${n} `));
    text += `word${n} `;
    frames.push(...resume(feed, frames).slice(0, 1));
    // The first connection was not cut in the message: it gets an empty begin, and would get the text after it.
    expect(contentOf(frames)).toBe(n === 0 ? '' : text);
  }
  const calls: ModelMessage['toolCalls'] = [
    { id: 'a', name: 'look', arguments: '{}', info: { type: 'system', name: 'look' }, route: { to: 'client' } },
  ];
  const entry = message(1, text, { toolCalls: calls, reasoning: 'why', finishReason: 'tool_calls' });
  feed.entry(entry);
  const rest = resume(feed, frames);
  expect(rest).toEqual([{ sequenceNumber: 1_000_000, frame: { kind: 'record', record: entry.record } }]);
  expect(eventsOf(rest)).toEqual([{ sequenceNumber: 1_000_000, event: toWire(entry.record, OWNER) }]);
});

test('a client that gets one event per connection gets past a message of any length, in lines below 1 MiB', () => {
  const feed = new TurnFeed();
  const [content, args] = ['é"'.repeat(1_000_000), 'x'.repeat(700_000)];
  const call = { id: 'a', name: 'look', info: { type: 'system' as const, name: 'look' } };
  const entry = message(1, content, { toolCalls: [{ ...call, arguments: args, route: { to: 'client' } }] });
  feed.entry(entry);
  const frames: NumberedFrame[] = [];
  for (let connections = 0; connections < 20; connections++) frames.push(...resume(feed, frames).slice(0, 1));
  expect(frames.at(-1)?.sequenceNumber).toBe(1_000_000);
  expect(fold(frames).events).toEqual([toWire(entry.record, OWNER)]);
  expectRising(frames);
  for (const one of frames) expect(bytesOf([one])).toBeLessThan(1024 * 1024);
});

test('a reader that was cut anywhere in a long message, and once more after that, ends with the message', () => {
  const feed = new TurnFeed();
  feed.frame(frame(0, 'a'.repeat(600_000)));
  const live = resume(feed, []);
  const entry = message(1, 'a'.repeat(600_000) + 'b'.repeat(1_200_000));
  feed.entry(entry);
  for (let cut = 0; cut <= live.length; cut++) {
    const before = live.slice(0, cut);
    const rest = resume(feed, before);
    for (let again = 0; again <= rest.length; again++) {
      const frames = [...before, ...rest.slice(0, again)];
      frames.push(...resume(feed, frames));
      expect(fold(frames).events).toEqual([toWire(entry.record, OWNER)]);
      expectRising(frames);
    }
  }
});

test('a reader that falls behind repeatedly is sent a message once', () => {
  const feed = new TurnFeed();
  const reader = new StreamSequencer();
  const frames: NumberedFrame[] = [];
  const join = (): void => feed.join(reader, (sent) => frames.push(...sent));
  const piece = 'x'.repeat(1_000);
  const info = { type: 'system' as const, name: 'look' };
  for (let n = 0; n < 2_000; n++) {
    if (n % 100 === 0) feed.leave(reader);
    if (n % 100 === 90) join();
    const call = n === 1_950 ? { index: 0, id: 'a', name: 'look', info, arguments: '' } : { index: 0, arguments: '1' };
    feed.frame(frame(n, piece, n < 1_950 ? {} : { delta: { content: piece, toolCalls: [call] } }));
  }
  feed.leave(reader);
  const entry = message(1, piece.repeat(2_000) + 'end', {
    toolCalls: [{ id: 'a', name: 'look', info, arguments: '1'.repeat(49), route: { to: 'client' } }],
  });
  feed.entry(entry);
  // It catches up from the log: the message is durable now.
  for (const each of feed.entries(1)) frames.push(...reader.durable(each));
  expect(fold(frames).events).toEqual([toWire(entry.record, OWNER)]);
  expect(bytesOf(frames)).toBeLessThan(2.2e6);
});

test('a reader that missed an attempt holds nothing of the next one', () => {
  const feed = new TurnFeed();
  const reader = new StreamSequencer();
  const frames: NumberedFrame[] = [];
  const join = (): void => feed.join(reader, (sent) => frames.push(...sent));
  join();
  feed.frame(frame(0, 'one '));
  feed.leave(reader);
  feed.frame(frame(0, 'another ', { attempt: 2 }));
  feed.frame(frame(1, 'text', { attempt: 2 }));
  join();
  expect(contentOf(frames)).toBe('another text');
  feed.leave(reader);
  feed.frame(frame(0, 'third', { attempt: 3 }));
  feed.entry(message(1, 'third'));
  for (const each of feed.entries(1)) frames.push(...reader.durable(each));
  expect(contentOf(frames)).toBe('third');
});

test('the record before a message is sent once, before the message; a different one in the log replaces it', () => {
  const at = (servers: string[]): McpInitialized => ({
    kind: 'mcp.initialize',
    id: 'evt_1',
    at: AT,
    threadId: 'main',
    servers: servers.map((id) => ({ id, name: id, sessionId: null, transport: 'streamable-http' })),
  });
  for (const logged of [['a'], ['b']]) {
    const feed = new TurnFeed();
    const reader = new StreamSequencer();
    const frames: NumberedFrame[] = [];
    feed.join(reader, (sent) => frames.push(...sent));
    feed.frame(frame(0, 'one ', { preceding: at(['a']) }));
    feed.frame(frame(1, 'two'));
    feed.entry({ ordinal: 1, record: at(logged) });
    const kinds = frames.map(({ frame: { kind } }) => kind);
    expect(kinds).toEqual(['record', 'begin', 'delta', 'delta', ...(logged[0] === 'a' ? [] : ['record'])]);
    // A reader of the log's record gets no other one, whichever the message in progress has.
    const late: NumberedFrame[] = [];
    feed.join(new StreamSequencer(), (sent) => late.push(...sent));
    expect(late.map(({ frame: { kind } }) => kind)).toEqual(['record', 'begin', 'delta']);
    feed.entry(message(2, 'one two', { id: 'msg_1' }));
    for (const each of [frames, late]) {
      expect(fold(each).events).toEqual(feed.entries(1).map(({ record }) => toWire(record, OWNER)));
      expectRising(each);
    }
  }
});

test('a client with one event per connection gets the text of a message, not the record before it again', () => {
  const feed = new TurnFeed();
  const record = { kind: 'mcp.initialize' as const, id: 'evt_1', at: AT, threadId: 'main', servers: [] };
  feed.frame(frame(0, 'one ', { preceding: record }));
  const [first, ...more] = resume(feed, []).slice(0, 1);
  if (!first) throw new Error('no frame');
  expect([first.frame, more]).toEqual([{ kind: 'record', record }, []]);
  feed.frame(frame(1, 'two'));
  const [second] = resume(feed, [first]);
  expect(second?.frame).toMatchObject({ kind: 'begin', text: { content: 'one two' } });
  // Its connection was not sent the record, so it gets the durable one.
  feed.entry({ ordinal: 1, record });
  expect(resume(feed, [first, second!]).map(({ frame }) => frame)[0]).toEqual({ kind: 'record', record });
});

test('a reader that was cut in a message gets the record before a later message with that, before the message', () => {
  const feed = new TurnFeed();
  feed.frame(frame(0, 'one '));
  const frames = resume(feed, []);
  feed.entry(message(1, 'one two', { id: 'msg_1' }));
  const preceding = { kind: 'mcp.initialize' as const, id: 'evt_2', at: AT, threadId: 'main', servers: [] };
  feed.frame(frame(0, 'three', { messageId: 'msg_3', after: 1, preceding }));
  const kinds = resume(feed, frames).map(({ frame: { kind } }) => kind);
  expect(kinds).toEqual(['record', 'record', 'begin', 'delta']);
});

test('a turn that ends in the queue has one turn.created, with one number, in every stream and from every cursor', () => {
  const created = turnCreated(turnStart({ queued: { number: 7, position: 2 } }));
  const end = { status: 'cancelled' as const, reason: 'client-cancelled' as const };
  const done = { kind: 'turn.done' as const, id: 'evt_2', at: AT, ...NO_TOTALS, end, waitedMs: 0, workedMs: 0 };
  const feed = new TurnFeed();
  /** A connection while the turn waits, which stays. */
  const waiting = (cursor?: Cursor): NumberedFrame[] => {
    const reader = new StreamSequencer(cursor);
    const frames = reader.queued(created);
    feed.join(reader, (sent) => frames.push(...sent));
    return frames;
  };
  const whole = waiting();
  const resumed = waiting({ ordinal: 0, frame: 1 });
  expect([whole, resumed].map(({ length }) => length)).toEqual([1, 0]);
  for (const entry of [
    { ordinal: 1, record: created },
    { ordinal: 2, record: done },
  ])
    feed.entry(entry);
  const [first, last] = eventsOf(whole);
  expect(first).toMatchObject({ sequenceNumber: 1, event: { state: { status: 'running', queued: { position: 2 } } } });
  expect(last).toMatchObject({ sequenceNumber: 2_000_000, event: { type: 'turn.done' } });
  expect(eventsOf(whole)).toEqual([first, last]);
  expect(eventsOf(resumed)).toEqual([last]);
  for (let cut = 0; cut <= whole.length; cut++) {
    expect(eventsOf(resume(feed, whole.slice(0, cut)))).toEqual([first, last].slice(cut));
  }
});

test('the turn.created of a turn that waits in the queue is replaced when the turn begins', () => {
  const waiting = new StreamSequencer();
  const frames = waiting.queued(turnCreated(turnStart({ queued: { number: 7, position: 2 } })));
  const record = turnCreated(turnStart({ previousTurnId: 'turn_0' }));
  for (const reader of [waiting, new StreamSequencer(cursorAfter(frames))]) {
    const begun = reader.durable({ ordinal: 1, record });
    expect(begun).toEqual([{ sequenceNumber: 1_000_000, frame: { kind: 'record', record } }]);
    expect(fold([...frames, ...begun]).events).toEqual([toWire(record, OWNER)]);
  }
});

test('a client keeps its text when its server has received no frame of the message yet', () => {
  const feed = new TurnFeed();
  expect(feed.frame(frame(5, 'behind a gap'))).toBe(false);
  const begun = { kind: 'begin' as const, message: { id: 'msg_1', at: AT, threadId: 'main' }, text: emptyText() };
  expect(resume(feed, [{ sequenceNumber: 7, frame: begun }])).toEqual([]);
});

test('the memory of all feeds of a process is bounded: the entries of the least recently used one are dropped', () => {
  const budget = new FeedBudget(10_000);
  const [idle, read, busy] = Array.from({ length: 3 }, () => new TurnFeed(budget));
  for (const feed of [idle, read]) feed?.entry(message(1, 'x'.repeat(4_000)));
  idle?.frame(frame(0, 'in progress', { messageId: 'msg_2', after: 1 }));
  read?.join(new StreamSequencer(), () => undefined);
  busy?.entry(message(1, 'x'.repeat(4_000)));
  expect([idle, read, busy].map((feed) => feed?.entries(1).length)).toEqual([0, 1, 1]);
  expect(budget.characters).toBeLessThanOrEqual(10_000);
  // Its readers lose nothing: one that lacks entries reads the log first, any other gets the message in progress.
  expect(() => idle?.join(new StreamSequencer(), () => undefined)).toThrow(RangeError);
  const frames: NumberedFrame[] = [];
  idle?.join(new StreamSequencer({ ordinal: 1, frame: 0 }), (sent) => frames.push(...sent));
  expect(contentOf(frames)).toBe('in progress');
  for (const feed of [idle, read, busy]) feed?.close();
  expect(budget.characters).toBe(0);
});

const LONG = 'x'.repeat(5_000);
const IN_THREAD = { id: 'evt_1', at: AT, threadId: 'main' };

test.each<LogRecord>([
  message(1, LONG).record,
  message(1, '', { images: [{ file: { type: 'file', name: 'a.png', mimeType: 'image/png', bytes: 1, base64: LONG } }] })
    .record,
  turnCreated(turnStart({ input: [{ type: 'user.message', content: LONG }] })),
  { ...IN_THREAD, kind: 'tool.response', toolCallId: 'call_1', outcome: 'succeeded', content: LONG },
  { ...IN_THREAD, kind: 'tool.decided', toolCallId: 'call_1', decision: 'deny', reason: LONG, remaining: 0 },
  { ...IN_THREAD, kind: 'context.compacted', through: 1, summary: LONG, tokensBefore: 2, tokensAfter: 1 },
  { ...IN_THREAD, kind: 'feature.event', type: 'code.event', data: { lines: ['', { text: LONG }] } },
])('the texts of a record count for the memory of its feed: $kind', (record) => {
  const budget = new FeedBudget();
  new TurnFeed(budget).entry({ ordinal: 1, record });
  expect(budget.characters).toBeGreaterThan(LONG.length);
  expect(budget.characters).toBeLessThan(LONG.length + 2_500);
});

test.each([
  ['one message', MAX_LIVE_CHARACTERS, new FeedBudget()],
  ['all turns together', 1_000_000, new FeedBudget(1_000_000)],
])('the live text of %s is bounded; the rest comes from the log', (_, bound, budget) => {
  const feed = new TurnFeed(budget);
  const frames: NumberedFrame[] = [];
  feed.join(new StreamSequencer(), (sent) => frames.push(...sent));
  const piece = 'x'.repeat(100_000);
  for (let n = 0; n < 60; n++) expect(feed.frame(frame(n, piece))).toBe(true);
  expect(budget.characters).toBeGreaterThan(bound / 2);
  expect(budget.characters).toBeLessThan(bound + 2 * piece.length);
  expect(contentOf(frames).length).toBeLessThan(bound + 2 * piece.length);
  const entry = message(1, piece.repeat(60));
  feed.entry(entry);
  expect(fold(frames).events).toEqual([toWire(entry.record, OWNER)]);
  expect(eventsOf(frames).filter(({ event }) => event.type === 'model.message').length).toBe(1);
});

test('a message that exceeds the live bound has no snapshots', () => {
  const bus = new InProcessBus();
  const piece = 'x'.repeat(1_000_000);
  const snapshots: number[] = [];
  const ignore = (): void => undefined;
  bus.subscribe('turn_1', {
    frame: ignore,
    snapshot: ({ frames }) => snapshots.push(frames),
    retrying: ignore,
    output: ignore,
    lost: ignore,
  });
  for (let n = 0; n < 8; n++) {
    bus.publish(frame(n, piece));
    bus.requestSnapshots('turn_1');
  }
  expect(snapshots).toEqual([1, 2, 3, 4]);
});
