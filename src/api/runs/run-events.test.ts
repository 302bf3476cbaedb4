import { StreamAccumulator, type PartialModelResponse } from '@hoangvvo/llm-sdk';
import { fc } from '../../../test/support/fast-check.ts';
import { expect, test } from 'vitest';
import { deliveries, fault } from '../../../test/support/central-property.ts';
import { randomThreads } from '../../../test/support/random-threads.ts';
import { randomTurn, turnStart, type TurnStep } from '../../../test/support/random-turn.ts';
import { randomWaiting } from '../../../test/support/random-waiting.ts';
import { RunFold, type FoldedPart } from '../../../test/support/run-fold.ts';
import { BEGINNING, parseCursor, type Cursor } from '../../core/cursor.ts';
import { applyDelta, emptyText, type MessageDelta, type MessageText } from '../../core/message.ts';
import { turnCreated } from '../../core/turn.ts';
import { FIRST_SECTION, storedSections, type HostedPart, type SectionDelta } from '../../core/sections.ts';
import type { ToolCall } from '../../core/records/calls.ts';
import type { LogEntry, LogRecord } from '../../core/records/log.ts';
import type { ModelMessage } from '../../core/records/message.ts';
import type { TurnDone } from '../../core/records/turn.ts';
import { NO_TOTALS } from '../../core/turn-totals.ts';
import { InProcessBus } from '../../live/in-process-bus.ts';
import { StreamSequencer, type TurnFrame } from '../../live/stream-sequencer.ts';
import { TurnFeed } from '../../live/turn-feed.ts';
import { RunEvents } from './run-events.ts';
import { RunOutput } from './run-output.ts';
import { runStreamEvent, type RunHeader, type RunItem, type RunStreamEvent } from './wire/run.ts';
import { OWNER } from '../../../test/support/readers.ts';

const AT = '2026-11-23T08:00:00.000Z';
const RUN: RunHeader = { id: 'run_1', object: 'run', agent_name: 'agent', created_at: AT, metadata: {} };
const LIMITS = { maxTurns: 3, actionTimeoutSeconds: 60 };

interface Connections {
  /** How many events the client reads from each of its connections; from later ones as many as from the last. */
  limits?: number[];
  /** How many deliveries it waits before it connects again. */
  pause?: number;
}

/** A client that is sent what `RunReader` sends, and connects again after each cut and each pause of the run. */
class Client {
  readonly events: RunStreamEvent[] = [];
  readonly fold = new RunFold();
  readonly #feed: TurnFeed;
  readonly #limits: number[];
  readonly #pause: number;
  #connections = 0;
  #limit = 0;
  #waits = 0;
  #reader: StreamSequencer | undefined;
  #run: RunEvents | undefined;

  constructor(feed: TurnFeed, { limits = [Infinity], pause = 0 }: Connections = {}) {
    this.#feed = feed;
    this.#limits = limits;
    this.#pause = pause;
    this.#connect();
  }

  get isConnected(): boolean {
    return this.#limit > 0;
  }

  get isAtEnd(): boolean {
    const last = this.events.at(-1);
    return last?.event === 'error' || (last?.event === 'response' && last.status !== 'requires_action');
  }

  /** Called between two deliveries. */
  next(): void {
    const pause = this.isConnected ? this.#run?.pause() : undefined;
    if (pause) {
      this.#take([pause]);
      this.#limit = 0;
      this.#waits = this.#pause;
    }
    if (!this.isConnected && !this.isAtEnd && this.#waits-- <= 0) this.#connect();
  }

  #connect(): void {
    if (this.#reader) this.#feed.leave(this.#reader);
    const reader = new StreamSequencer();
    const run = new RunEvents({ run: RUN, reader: OWNER, limits: LIMITS, cursor: cursorAfter(this.events) });
    this.#reader = reader;
    this.#run = run;
    this.#limit = this.#limits[this.#connections++] ?? this.#limits.at(-1) ?? 0;
    this.#waits = this.#pause;
    for (const entry of this.#feed.entries(1)) this.#take(run.events(reader.durable(entry)));
    this.#feed.join(reader, (frames) => this.#take(run.events(frames)));
  }

  #take(events: Iterable<RunStreamEvent>): void {
    for (const event of events) {
      if (this.#limit === 0) return;
      this.events.push(event);
      this.fold.add(event);
      this.#limit -= 1;
    }
  }
}

function cursorAfter(events: RunStreamEvent[]): Cursor {
  const cursor = parseCursor(events.at(-1)?.sequence_number ?? 0);
  if (!cursor) throw new Error('a stream sent a number that is not a cursor');
  return cursor;
}

function expectRising(events: RunStreamEvent[]): void {
  const numbers = events.map((event) => event.sequence_number);
  expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b));
}

/** The output from the log, without a stream. */
function outputOf(entries: LogEntry[]) {
  const output = new RunOutput(LIMITS);
  for (const { record } of entries) output.feed(record);
  return output.run(RUN, OWNER);
}

const bus = new InProcessBus();

async function checkStreams(turns: fc.Arbitrary<TurnStep[]>, numRuns: number): Promise<void> {
  await fc.assert(
    fc.asyncProperty(
      turns,
      fc.array(fault, { minLength: 1, maxLength: 30 }),
      fc.integer({ min: 0, max: 6 }),
      async (steps, faults, pause) => {
        const { entries, deliver, end } = await deliveries({ worker: bus, api: bus }, steps, faults);
        const feed = new TurnFeed();
        const whole = new Client(feed);
        const cuts = steps.map((_, cut) => new Client(feed, { limits: [cut, Infinity], pause }));
        const clients = [whole, ...cuts, ...[1, 2, 3].map((limit) => new Client(feed, { limits: [limit] }))];
        for (const step of deliver) {
          await step(feed);
          for (const client of clients) client.next();
          for (const client of cuts.filter(({ isConnected }) => isConnected)) {
            expect(client.fold.items).toHaveLength(whole.fold.items.length);
          }
        }
        const run = outputOf(entries);
        for (const client of clients) {
          for (let n = 0; n < 4 * entries.length + pause && !client.isAtEnd; n++) client.next();
          const { items, parts, end: last } = client.fold;
          expect(items).toEqual(run.output);
          expect(parts).toEqual([]);
          expect(last).toEqual(
            run.error
              ? expect.objectContaining({ event: 'error', error: run.error, output: run.output, status: 'failed' })
              : expect.objectContaining({ event: 'response', ...run }),
          );
          expectRising(client.events);
        }
        expectWhole(whole.events);
        for (const event of whole.events) expect(runStreamEvent.parse(event)).toEqual(event);
        end();
      },
    ),
    { numRuns },
  );
}

/** The partials of each message, as far as there are any, fold to its item. */
function expectWhole(events: RunStreamEvent[]): void {
  const fold = new RunFold();
  for (const event of events) {
    const { parts, usage, partials } = fold;
    fold.add(event);
    if (event.event !== 'item' || partials.length === 0) continue;
    const { item } = event;
    if (item.type !== 'model') throw new Error('partials of the result of a call');
    expect(parsed(parts)).toEqual(item.content.map(foldedPart));
    expect(usage).toEqual(item.usage);
    expect(partials.at(-1)).toMatchObject({ usage: item.usage });
  }
}

/** A part of an item as its partials add up. */
function foldedPart(part: (RunItem & { type: 'model' })['content'][number]): object {
  if (part.type !== 'tool-call') return part;
  const { call: _, ...rest } = part;
  return rest;
}

/** The parts of a fold, with the arguments of calls as objects if they are. */
function parsed(parts: FoldedPart[]): object[] {
  return parts.map((part) => {
    if (part['type'] !== 'tool-call') return part;
    const { args: text = '', ...rest } = part;
    try {
      const args: unknown = JSON.parse(String(text) || '{}');
      if (typeof args === 'object' && args !== null && !Array.isArray(args)) return { ...rest, args };
    } catch {
      // The model has written something else.
    }
    return String(text).trim() ? { ...rest, args: {}, raw_args: text } : { ...rest, args: {} };
  });
}

test('every cut of a stream, resumed at any time, ends with the items of the log', async () => {
  await checkStreams(randomTurn(), 40);
});

test('the same holds for a run with sub-agents, which its stream does not show', async () => {
  await checkStreams(randomThreads(), 20);
});

test('the same holds for runs that wait for people', async () => {
  await checkStreams(randomWaiting(), 20);
});

const HEAD = { id: 'msg_1', at: AT, threadId: 'main' };
const CREATED: LogRecord = turnCreated(turnStart({ createdAt: AT }));
const USAGE = { inputTokens: 11, outputTokens: 7, cacheReadTokens: 4, cacheWriteTokens: 0, reasoningTokens: 0 };

function messageOf(deltas: MessageDelta[], fields: Partial<ModelMessage> = {}): ModelMessage {
  const text: MessageText = emptyText();
  for (const delta of deltas) applyDelta(text, delta);
  const { toolCalls, sections, ...texts } = text;
  const calls = toolCalls.map((call): ToolCall => ({ ...call, route: { to: 'client' } }));
  return {
    ...HEAD,
    kind: 'model.message',
    ...texts,
    ...storedSections(sections),
    toolCalls: calls,
    finishReason: 'stop',
    ...fields,
  };
}

/** The stream of a run with one message, which is sent while it is written. */
function streamOf(deltas: MessageDelta[], message: ModelMessage, cursor: Cursor = BEGINNING): RunStreamEvent[] {
  const events = new RunEvents({ run: RUN, reader: OWNER, limits: LIMITS, cursor });
  const frames: TurnFrame[] = [
    { kind: 'begin', message: HEAD, text: emptyText() },
    ...deltas.map((delta): TurnFrame => ({ kind: 'delta', message: HEAD, delta })),
  ];
  const numbered = frames.map((frame, i) => ({ sequenceNumber: 1_000_001 + i, frame }));
  return [
    { sequenceNumber: 1_000_000, frame: { kind: 'record' as const, record: CREATED } },
    ...numbered,
    { sequenceNumber: 2_000_000, frame: { kind: 'end' as const, message } },
    { sequenceNumber: 3_000_000, frame: { kind: 'record' as const, record: DONE } },
  ].flatMap((frame) => [...events.events([frame])]);
}

const DONE: TurnDone = {
  kind: 'turn.done',
  id: 'evt_9',
  at: AT,
  end: { status: 'done', output: null, requiredActions: [] },
  ...NO_TOTALS,
  waitedMs: 0,
  workedMs: 0,
};

function firstOf(index: number, args: string): MessageDelta {
  const info = { type: 'system' as const, name: 'look' };
  return { toolCalls: [{ index, id: `call_${index}`, name: 'look', info, arguments: args }] };
}

test('text and its end have rising numbers, and the usage is in the last partial', () => {
  const deltas = [{ content: 'It is ' }, { content: '21.' }];
  const message = messageOf(deltas, { usage: { ...USAGE, cacheReadTokens: 0, costInUsd: 0.001 } });
  const text = (part: string) => ({
    event: 'partial',
    item_index: 0,
    delta: { index: 0, part: { type: 'text', text: part } },
  });
  const usage = { input_tokens: 11, output_tokens: 7 };
  expect(streamOf(deltas, message)).toEqual([
    { ...text('It is '), sequence_number: 1_100_000 },
    { ...text('21.'), sequence_number: 1_100_001 },
    { event: 'partial', item_index: 0, usage, cost: 0.001, sequence_number: 2_000_000 },
    expect.objectContaining({ event: 'item', index: 0, sequence_number: 2_000_001 }),
    expect.objectContaining({ event: 'response', status: 'completed', sequence_number: 3_000_000 }),
  ]);
});

test('a part that begins after one that stands behind it starts the message over', () => {
  const deltas = [{ content: 'so' }, { reasoning: 'hm' }, { content: ' it' }, firstOf(0, '{"a":'), { reasoning: '.' }];
  const events = streamOf(deltas, messageOf(deltas));
  const partials = events.flatMap((event) => (event.event === 'partial' ? [event] : []));
  expect(partials.map(({ delta, reset = false }) => [delta?.index, delta?.part.type, reset])).toEqual([
    [0, 'text', false],
    [0, 'reasoning', true],
    [1, 'text', false],
    [1, 'text', false],
    [2, 'tool-call', false],
    [0, 'reasoning', false],
  ]);
});

const SEARCH: HostedPart = { type: 'call', id: 'ws_1', status: 'in_progress' };
const SEARCHED: HostedPart = { ...SEARCH, action: { type: 'search', queries: ['sea'] }, status: 'completed' };
const FOUND: HostedPart = { type: 'result', id: 'ws_1', sources: [{ url: 'https://a.example', pageAge: 'May' }] };

/** The deltas of an answer with a search between two texts. */
const SEARCHING: MessageDelta[] = [
  { reasoning: 'hm' },
  { content: 'Let me see.' },
  { sections: [{ index: 0, start: FIRST_SECTION }, hostedAt(1, SEARCH)] },
  { sections: [{ index: 1, hosted: SEARCHED }] },
  { sections: [hostedAt(2, FOUND)] },
  { content: 'It is ' },
  { content: 'blue.' },
  { sections: [{ index: 2, citations: [{ source: 'https://a.example', citedText: 'blue', startIndex: 0 }] }] },
];

function hostedAt(index: number, hosted: HostedPart): SectionDelta {
  return { index, start: { reasoning: 2, content: 11, toolCalls: 0 }, hosted };
}

test('searches of the provider stand among the texts in the order in which they began', () => {
  const message = messageOf(SEARCHING, { usage: { ...USAGE, cacheReadTokens: 0 } });
  const events = streamOf(SEARCHING, message);
  const partials = events.flatMap((event) => (event.event === 'partial' && event.delta ? [event.delta] : []));
  const web = { type: 'web_search' };
  const action = { type: 'search', queries: ['sea'] };
  const found = {
    type: 'tool-result',
    tool_call_id: 'ws_1',
    result: { ...web, sources: [{ url: 'https://a.example', page_age: 'May' }] },
    status: 'completed',
  };
  const citation = { source: 'https://a.example', cited_text: 'blue', start_index: 0 };
  expect(partials.map(({ index, part }) => [index, part])).toEqual([
    [0, { type: 'reasoning', text: 'hm' }],
    [1, { type: 'text', text: 'Let me see.' }],
    [2, { type: 'tool-call', tool_call_id: 'ws_1', call: { ...web, status: 'in_progress' } }],
    [2, { type: 'tool-call', call: { ...web, action, status: 'completed' } }],
    [3, found],
    [4, { type: 'text', text: 'It is ' }],
    [4, { type: 'text', text: 'blue.' }],
    [4, { type: 'text', text: '', citation: { type: 'citation', ...citation } }],
  ]);
  expect(events.find((event) => event.event === 'item')?.item).toMatchObject({
    content: [
      { type: 'reasoning', text: 'hm' },
      { type: 'text', text: 'Let me see.' },
      { type: 'tool-call', tool_call_id: 'ws_1', call: { ...web, action, status: 'completed' } },
      found,
      { type: 'text', text: 'It is blue.', citations: [citation] },
    ],
  });
  for (const event of events) expect(runStreamEvent.parse(event)).toEqual(event);
  expect(events.some((event) => event.event === 'partial' && event.reset)).toBe(false);
  const fold = new RunFold();
  for (const event of events.slice(0, -2)) fold.add(event);
  expect(fold.parts.map(({ type }) => type)).toEqual(['reasoning', 'text', 'tool-call', 'tool-result', 'text']);
});

test('a reader that joins within a search gets the parts so far, in one delta each', () => {
  const sequencer = new StreamSequencer();
  const events = new RunEvents({ run: RUN, reader: OWNER, limits: LIMITS, cursor: BEGINNING });
  const { text, toolCalls } = { text: emptyText() as MessageText, toolCalls: [] };
  for (const delta of SEARCHING) applyDelta(text, delta);
  const live = { id: 'msg_1', threadId: 'main', at: AT, after: 1, attempt: 1, frames: 8, text, characters: 1 };
  const sent = [
    ...events.events(sequencer.durable({ ordinal: 1, record: CREATED })),
    ...events.events(sequencer.live(live)),
    ...events.events(sequencer.durable({ ordinal: 2, record: messageOf(SEARCHING, { toolCalls }), liveAttempt: 1 })),
  ];
  const partials = sent.flatMap((event) => (event.event === 'partial' && event.delta ? [event.delta.index] : []));
  expect(partials).toEqual([0, 1, 2, 3, 4, 4]);
});

test('a reader that was cut within a message gets all of it so far, and forgets what it has', () => {
  const deltas = [{ content: 'It is ' }, { content: '21.' }];
  const [first, second] = streamOf(deltas, messageOf(deltas), { ordinal: 1, frame: 100_000 });
  expect(first).toMatchObject({ reset: true, delta: { part: { text: 'It is ' } }, sequence_number: 1_100_001 });
  expect(second).toMatchObject({ delta: { part: { text: '21.' } }, sequence_number: 1_100_002 });
  expect(second).not.toHaveProperty('reset');
});

test('a message of which nothing remains is taken back', () => {
  const lost = messageOf([], { finishReason: 'cancelled' });
  const [text, reset, end] = streamOf([{ content: 'It' }], lost);
  expect(text).toMatchObject({ delta: { part: { text: 'It' } } });
  expect(reset).toEqual({ event: 'partial', item_index: 0, reset: true, sequence_number: 2_000_000 });
  expect(end).toMatchObject({ event: 'error' });
  expect(streamOf([], lost).map(({ event }) => event)).toEqual(['error']);
});

test('a pause ends a stream only while it lasts, and once', () => {
  const deltas = [firstOf(0, '{}')];
  const base = { id: 'evt_1', at: AT };
  const place = { threadId: 'main', toolCallId: 'call_0' };
  const source = { turnId: 'turn_1', messageId: 'msg_1', stamp: 's', index: 0 };
  const log: LogRecord[] = [
    CREATED,
    messageOf(deltas),
    { ...base, kind: 'tool.response_required', threadId: 'main', calls: [{ ...place, needs: 'response', source }] },
    { ...base, kind: 'turn.paused', reason: 'action' },
    { ...base, kind: 'tool.response', ...place, outcome: 'succeeded', content: '1' },
    { ...base, kind: 'turn.resumed', reason: 'action' },
  ];
  const after = (count: number, cursor: Cursor) => {
    const events = new RunEvents({ run: RUN, reader: OWNER, limits: LIMITS, cursor });
    const sequencer = new StreamSequencer();
    const sent = log
      .slice(0, count)
      .flatMap((record, i) => [...events.events(sequencer.durable({ ordinal: i + 1, record }))]);
    return [...sent, events.pause()].flatMap((event) => (event ? [event.event] : []));
  };
  expect(after(4, BEGINNING)).toEqual(['item', 'response']);
  expect(after(4, { ordinal: 4, frame: 0 })).toEqual([]);
  expect(after(6, BEGINNING)).toEqual(['item', 'item']);
});

const pieces = fc.array(fc.string({ minLength: 1, maxLength: 5 }), { maxLength: 3 });
const args = fc.dictionary(fc.string({ maxLength: 3 }), fc.jsonValue(), { maxKeys: 3, noNullPrototype: true });

/** The deltas of a message, in the order in which a model may write them. */
const message = fc
  .record({
    reasoning: pieces,
    text: pieces,
    calls: fc.array(fc.record({ args, cut: fc.nat({ max: 20 }) }), { maxLength: 3 }),
    order: fc.infiniteStream(fc.nat({ max: 2 })),
  })
  .map(({ reasoning, text, calls, order }) => {
    const kinds: MessageDelta[][] = [
      reasoning.map((piece) => ({ reasoning: piece })),
      text.map((piece) => ({ content: piece })),
      calls.flatMap(({ args, cut }, index) => {
        const json = JSON.stringify(args);
        return [firstOf(index, json.slice(0, cut)), { toolCalls: [{ index, arguments: json.slice(cut) }] }];
      }),
    ];
    const deltas: MessageDelta[] = [];
    while (kinds.some(({ length }) => length > 0)) {
      const next = kinds[order.next().value ?? 0]?.shift();
      if (next) deltas.push(next);
    }
    return deltas;
  });

test("folding partials with llm-sdk's StreamAccumulator gives the content, the usage and the cost of the item", () => {
  fc.assert(
    fc.property(message, (deltas) => {
      fc.pre(deltas.length > 0);
      const usage = { ...USAGE, costInUsd: 0.25 };
      const fields = { provider: 'p', providerFields: { opaque: 1 }, usage };
      const events = streamOf(deltas, messageOf(deltas, fields));
      let accumulator = new StreamAccumulator();
      for (const event of structuredClone(events)) {
        if (event.event !== 'partial') break;
        expect(event.item_index).toBe(0);
        if (event.reset) accumulator = new StreamAccumulator();
        accumulator.addPartial(event as PartialModelResponse);
      }
      const item = events.find((event) => event.event === 'item')?.item;
      if (item?.type !== 'model') throw new Error('the message is not an item');
      const { content, usage: counted, cost } = accumulator.computeResponse();
      // It supports neither the fields of 0.4 nor signatures of texts.
      const known = item.content.map(({ ...part }) => {
        if (part.type === 'tool-call') delete (part as Partial<typeof part>).call;
        if (part.type === 'text') delete part.signature;
        return part;
      });
      expect(content).toEqual(known);
      expect(counted).toMatchObject(item.usage ?? {});
      expect(cost).toBe(item.cost);
    }),
    { numRuns: 300 },
  );
});
