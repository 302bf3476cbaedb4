import { pino } from 'pino';
import { expect, test } from 'vitest';
import { oneResponse } from '../../../test/support/one-response.ts';
import { turnStart, TURN_ID } from '../../../test/support/random-turn.ts';
import type { Catalog } from '../../features/catalog.ts';
import { BEGINNING, type Cursor } from '../../core/cursor.ts';
import { turnCreated } from '../../core/turn.ts';
import type { LogEntry, LogRecord } from '../../core/records/log.ts';
import { NO_TOTALS } from '../../core/turn-totals.ts';
import type { TurnLogReader } from '../../engine/turn-log-reader.ts';
import { InProcessBus } from '../../live/in-process-bus.ts';
import { TurnTailPool } from '../../live/turn-tail.ts';
import { Metrics } from '../../telemetry/metrics.ts';
import { EventStream } from '../http/event-stream.ts';
import { streamRun } from './stream-run.ts';
import type { RunStreamEvent } from './wire/run.ts';
import { OWNER } from '../../../test/support/readers.ts';

const AT = '2026-11-23T08:00:00.000Z';
const RUN = { id: 'run_1', object: 'run' as const, agent_name: 'agent', created_at: AT, metadata: {} };

const base = { id: 'evt_1', at: AT, threadId: 'main' };
const info = { type: 'system' as const, name: 'look' };
const route = { to: 'client' as const };
const calls = ['a', 'b'].map((id) => ({ id, name: 'look', arguments: '{}', info, route }));
const source = { turnId: TURN_ID, messageId: 'msg_1', stamp: 's', index: 0 };
const pending = calls.map(({ id }) => ({ threadId: 'main', toolCallId: id, needs: 'response' as const, source }));
const text = { content: '', refusal: '', reasoning: '' };

/** A run that waits for two calls. */
const PAUSED: LogRecord[] = [
  turnCreated(turnStart({ createdAt: AT })),
  { ...base, kind: 'model.message', id: 'msg_1', ...text, toolCalls: calls, finishReason: 'tool_calls' },
  { ...base, kind: 'tool.response_required', calls: pending },
  { ...base, kind: 'turn.paused', reason: 'action' },
];

function result(toolCallId: string): LogRecord {
  return { ...base, kind: 'tool.response', toolCallId, outcome: 'succeeded', content: toolCallId };
}

const RESUMED: LogRecord = { ...base, kind: 'turn.resumed', reason: 'action' };
const DONE: LogRecord = {
  ...base,
  kind: 'turn.done',
  end: { status: 'cancelled', reason: 'client-cancelled' },
  ...NO_TOTALS,
  waitedMs: 0,
  workedMs: 0,
};

/** A log that grows. */
class GrowingLog {
  readonly #entries: LogEntry[] = [];
  #grown = Promise.withResolvers<void>();

  /** Records that are added at once are read at once. */
  add(...records: LogRecord[]): void {
    for (const record of records) this.#entries.push({ ordinal: this.#entries.length + 1, record });
    this.#grown.resolve();
    this.#grown = Promise.withResolvers();
  }

  get reader(): TurnLogReader {
    const entries = this.#entries;
    const grown = () => this.#grown.promise;
    return {
      firstUnarchived: () => Promise.resolve(1),
      read: async function* (_: string, { from, follow }: { from: number; follow?: AbortSignal }) {
        for (let next = from; ;) {
          const read = entries.slice(next - 1);
          next += read.length;
          if (read.length > 0) yield read;
          if (!follow || entries.at(-1)?.record.kind === 'turn.done') return;
          const { promise, resolve } = Promise.withResolvers<void>();
          follow.addEventListener('abort', () => resolve());
          if (next > entries.length) await Promise.race([grown(), promise]);
          follow.throwIfAborted();
        }
      },
    } as unknown as TurnLogReader;
  }
}

/** A connection to the run, and the events that it gets until the server ends it. */
async function connect(log: GrowingLog, cursor: Cursor = BEGINNING) {
  const logs = log.reader;
  const bus = new InProcessBus();
  const catalog = { turns: { get: () => Promise.resolve(undefined) } } as unknown as Catalog;
  const tails = new TurnTailPool({ logs, bus, log: pino({ level: 'silent' }) });
  const blobs = { get: async (_: string, blob: string) => Buffer.from(blob) };
  const context = { catalog, logs, tails, blobs } as unknown as Parameters<typeof streamRun>[0]['context'];
  const limits = { maxTurns: 10, actionTimeoutSeconds: 60 };
  const { client } = await oneResponse((response) => {
    const stream = new EventStream(response, new Metrics());
    void streamRun({ context, run: RUN, reader: OWNER, limits, turnId: TURN_ID, sessionId: 'ses_1', cursor, stream });
  });
  const events = (async () => {
    let received = '';
    for await (const chunk of client) received += String(chunk);
    return [...received.matchAll(/^data: (.*)$/gm)].map(([, data]) => JSON.parse(data ?? '') as RunStreamEvent);
  })();
  return { events, bus };
}

const namesOf = (events: RunStreamEvent[]) =>
  events.map((event) => (event.event === 'response' ? event.status : event.event));

test('the stream of a run ends where it waits for its client', async () => {
  const log = new GrowingLog();
  log.add(...PAUSED);
  const { events } = await connect(log);
  expect(namesOf(await events)).toEqual(['item', 'requires_action']);
});

test('the same holds if it begins to wait while it is followed', async () => {
  const log = new GrowingLog();
  log.add(...PAUSED.slice(0, 1));
  const { events, bus } = await connect(log);
  const message = { turnId: TURN_ID, threadId: 'main', messageId: 'msg_1', createdAt: AT, after: 1, attempt: 1 };
  bus.publish({ ...message, n: 0, delta: { toolCalls: calls.map((call, index) => ({ index, ...call })) } });
  log.add(...PAUSED.slice(1));
  expect(namesOf(await events)).toEqual(['partial', 'partial', 'item', 'requires_action']);
});

test('a reader that has the pause gets what remains after an answer, and the end', async () => {
  const log = new GrowingLog();
  log.add(...PAUSED);
  const { events } = await connect(log, { ordinal: 4, frame: 0 });
  log.add(result('b'));
  const told = await events;
  expect(namesOf(told)).toEqual(['requires_action']);
  expect(told[0]).toMatchObject({ required_action: { tool_calls: [{ tool_call_id: 'a' }] } });
  const after = await connect(log, { ordinal: 5, frame: 0 });
  log.add(result('a'), RESUMED, DONE);
  expect(namesOf(await after.events)).toEqual(['item', 'item', 'cancelled']);
});

test('a pause that ends with the answer does not end the stream, though another call still waits', async () => {
  const log = new GrowingLog();
  log.add(...PAUSED);
  const { events } = await connect(log, { ordinal: 4, frame: 0 });
  log.add(result('b'), RESUMED);
  log.add(DONE);
  expect(namesOf(await events)).toEqual(['item', 'item', 'cancelled']);
});

test('a result is sent with the content of its files, whether it is read or followed', async () => {
  const log = new GrowingLog();
  log.add(...PAUSED);
  const { events } = await connect(log, { ordinal: 4, frame: 0 });
  const file = { type: 'file' as const, name: 'a.png', mimeType: 'image/png', bytes: 1, blob: 'pixels' };
  log.add({ ...result('a'), files: [file] } as LogRecord, result('b'), RESUMED, DONE);
  const image = { type: 'image', mime_type: 'image/png', data: Buffer.from('pixels').toString('base64') };
  const followed = await events;
  expect(namesOf(followed)).toEqual(['item', 'item', 'cancelled']);
  expect(followed[0]).toMatchObject({ item: { output: [{ type: 'text' }, image] } });
  const read = await connect(log, { ordinal: 4, frame: 0 });
  expect(await read.events).toEqual(followed);
});
