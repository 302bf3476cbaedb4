import { expect, test } from 'vitest';
import { turnStart } from '../../test/support/random-turn.ts';
import type { BlobStore } from '../blobs/blob-store.ts';
import type { KernelCatalog } from '../catalog/catalog.ts';
import type { CallModelInput, HistoryEvent, TurnStart } from '../core/history.ts';
import type { CallSource, ToolCall } from '../core/records/calls.ts';
import type { LogEntry, UnsequencedRecord } from '../core/records/log.ts';
import type { ModelMessage } from '../core/records/message.ts';
import { Turn } from '../core/turn.ts';
import { OnceLog } from '../lib/once-log.ts';
import type { TurnHistory } from '../temporal/history.ts';
import { callHash } from './call-hash.ts';
import { Conversations } from './conversations.ts';
import { TurnLogReader } from './turn-log-reader.ts';

const AT = '2026-11-21T08:00:00.000Z';
const never = new AbortController().signal;
const losses = new OnceLog({ warn: () => undefined });

/** Temporal and a catalog with turns; `taken` gives the reads since it was last asked, by what was read. */
class Turns {
  readonly #histories = new Map<string, HistoryEvent[]>();
  readonly #rows = new Map<string, object>();
  readonly #archive = new Map<string, LogEntry[]>();
  #reads: Record<string, number> = {};

  begin(start: TurnStart): HistoryEvent[] {
    const events: HistoryEvent[] = [{ type: 'started', at: AT, start, runId: `run_${start.turnId}` }];
    this.#histories.set(start.turnId, events);
    this.#row(start, []);
    return events;
  }

  archive(start: TurnStart): void {
    const turn = new Turn();
    const entries = this.#events(start.turnId).flatMap((event) => turn.feed(event));
    this.#archive.set(start.turnId, entries);
    this.#row(start, entries);
  }

  taken(): Record<string, number> {
    const reads = this.#reads;
    this.#reads = {};
    return reads;
  }

  /** The conversations and logs of one process. */
  worker(): { conversations: Conversations; logs: TurnLogReader } {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only these members are used
    const catalog = {
      turns: {
        get: (id: string) => this.#count('row', this.#rows.get(id)),
        chain: (id: string) => this.#count('chain', [...this.#archivedChain(id)]),
      },
      archive: {
        read: (id: string, from: number, limit: number) =>
          this.#count('archive', (this.#archive.get(id) ?? []).slice(from - 1, from - 1 + limit)),
        readAll: (ids: string[]) => this.#count('archive', new Map(ids.map((id) => [id, this.#archive.get(id) ?? []]))),
      },
    } as unknown as KernelCatalog;
    const events = (id: string) => this.#events(id);
    const count = <T>(what: string, value: T) => this.#count(what, value);
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as above
    const history = {
      async *read(id: string) {
        yield await count('history', { events: events(id), lastEventId: events(id).length });
      },
      async *readBackwards(id: string) {
        yield await count('end of history', events(id).slice(-50));
      },
      readSince: (id: string, _run: string, after: number) =>
        count('new events', { events: events(id).slice(after), lastEventId: events(id).length }),
      start: (id: string) =>
        count('start', events(id).flatMap((event) => (event.type === 'started' ? event.start : []))[0]),
      close: (id: string) =>
        count('close', events(id).flatMap((event) => (event.type === 'closed' ? event.close : []))[0]),
    } as unknown as TurnHistory;
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- all texts are small
    const sources = { history, losses, blobs: {} as BlobStore };
    const logs = new TurnLogReader({ ...sources, catalog });
    return { conversations: new Conversations({ ...sources, logs }), logs };
  }

  #row({ turnId, sessionId, previousTurnId, sequence }: TurnStart, entries: LogEntry[]): void {
    const archived = { archived: Number(entries.length > 0), archived_through: entries.length };
    const place = { session_id: sessionId, previous_turn_id: previousTurnId, sequence, queue_number: null };
    this.#rows.set(turnId, { id: turnId, ...place, ...archived });
  }

  *#archivedChain(last: string) {
    for (let id: string | null = last; id !== null;) {
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as `#row` makes them
      const row = this.#rows.get(id) as { archived: number; previous_turn_id: string | null };
      if (!row.archived) return;
      yield row;
      id = row.previous_turn_id;
    }
  }

  #events(turnId: string): HistoryEvent[] {
    const events = this.#histories.get(turnId);
    if (!events) throw new Error(`there is no turn ${turnId}`);
    return events;
  }

  #count<T>(what: string, value: T): Promise<T> {
    this.#reads[what] = (this.#reads[what] ?? 0) + 1;
    return Promise.resolve(value);
  }
}

function messageOf(id: string, toolCalls: ToolCall[]): ModelMessage {
  const text = { content: 'text', refusal: '', reasoning: '' };
  return { kind: 'model.message', id, at: AT, threadId: 'main', ...text, toolCalls, finishReason: 'tool_calls' };
}

function lookUp(id: string): ToolCall {
  const info = { type: 'mcp' as const, serverId: 'srv_1', serverName: 'orders', name: 'look' };
  const call = { id, name: 'look', info, arguments: '{}' };
  return { ...call, route: { to: 'server', effect: 'once', approval: false, callHash: callHash(call) } };
}

/** A turn of so many steps, each a model call and a tool call, which the workers run in rotation. */
async function longTurn(steps: number, workers: Conversations[], turns: Turns): Promise<void> {
  const start = turnStart({ turnId: 'turn_long' });
  const events = turns.begin(start);
  const runId = 'run_turn_long';
  let [upTo, ran] = [1, 0];
  let recent: string[] = [];
  const add = (worker: Conversations, stamp: string, records: UnsequencedRecord[], eventId: number): void => {
    worker.remember({ turnId: start.turnId, stamp }, records);
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- records get their ids with their ordinals
    const end = { how: 'completed' as const, stamp, records: records as ModelMessage[] };
    events.push({ type: 'ended', scheduledEventId: eventId, at: AT, end });
    recent.push(stamp);
    upTo += records.length;
  };
  const next = (): Conversations => workers[ran++ % workers.length]!;
  const { turnId, sessionId, previousTurnId } = start;
  const place = { turnId, sessionId, threadId: 'main', runId, deadline: Infinity, createdAt: AT };
  for (let step = 0; step < steps; step++) {
    const input: CallModelInput = {
      ...place,
      messageId: `msg_${step}`,
      step,
      upTo,
      recent,
      ...(step === 0 && { start }),
    };
    recent = [];
    const caller = next();
    await caller.call(input, runId);
    const loaded = await caller.load({ ...input, previousTurnId }, runId, never);
    expect(loaded).toHaveLength(input.upTo);
    const call = lookUp(`call_${step}`);
    const eventId = events.length + 1;
    events.push({ type: 'scheduled', eventId, at: AT, activity: { name: 'callModel', input } });
    add(caller, `model_${step}`, [messageOf(input.messageId, [call])], eventId);

    const runner = next();
    const run = { effect: 'once' as const, callHash: callHash(call) };
    const source: CallSource = { turnId, messageId: input.messageId, stamp: `model_${step}`, index: 0, run };
    expect(await runner.toolCall({ source, sessionId, runId })).toEqual(call);
    const result = { kind: 'tool.result' as const, at: AT, threadId: 'main', toolCallId: call.id };
    const toolId = events.length + 1;
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what the log needs of them
    const activity = { name: 'callTool', input: { turnId, threadId: 'main', toolCallId: call.id, source } } as never;
    events.push({ type: 'scheduled', eventId: toolId, at: AT, activity });
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as above
    add(runner, `tool_${step}`, [result as unknown as UnsequencedRecord], toolId);
  }
}

test('a turn of 100 steps on one worker is not read', async () => {
  const turns = new Turns();
  await longTurn(100, [turns.worker().conversations], turns);
  expect(turns.taken()).toEqual({});
});

test('in a turn of 100 steps on three workers, a model call reads what is new, and a tool call the end of the history', async () => {
  const turns = new Turns();
  const workers = [1, 2, 3].map(() => turns.worker().conversations);
  await longTurn(100, workers, turns);
  expect(turns.taken()).toEqual({ 'new events': 99, row: 100, 'end of history': 100 });
});

/** The starts of the first turns of a session, all of which have ended. */
function sessionOf(ended: number, turns: Turns): TurnStart[] {
  return Array.from({ length: ended }, (_, i) => {
    const previousTurnId = i === 0 ? null : `turn_${i}`;
    const start = turnStart({ turnId: `turn_${i + 1}`, sessionId: 'ses_1', previousTurnId, sequence: i + 1 });
    const events = turns.begin(start);
    events.push({ type: 'closed', at: AT, close: { how: 'completed', result: { status: 'done', pending: [] } } });
    return start;
  });
}

function firstCall(worker: Conversations, n: number): Promise<UnsequencedRecord[]> {
  const previousTurnId = `turn_${n - 1}`;
  const start = turnStart({ turnId: `turn_${n}`, sessionId: 'ses_1', previousTurnId, sequence: n });
  const { turnId, sessionId } = start;
  const place = { turnId, sessionId, threadId: 'main', runId: `run_${turnId}`, previousTurnId };
  const call = { ...place, deadline: Infinity, messageId: 'msg', createdAt: AT, step: 0, upTo: 1, recent: [], start };
  return worker.load(call, place.runId, never);
}

test('the first call of the 50th turn of a session reads the last turn, and on a new worker also the chain before it', async () => {
  const turns = new Turns();
  const starts = sessionOf(49, turns);
  for (const start of starts.slice(0, 48)) turns.archive(start);
  const { conversations, logs } = turns.worker();
  expect(await firstCall(conversations, 50)).toHaveLength(49 * 3 + 1);
  expect(turns.taken()).toEqual({ row: 1, history: 1, chain: 1, archive: 2 });
  // The part in memory is not read again: by the next call, or by a read of a single turn.
  await firstCall(conversations, 50);
  expect(await logs.all('turn_49')).toHaveLength(3);
  expect(await logs.firstAndLast('turn_20')).toMatchObject({
    created: { turnId: 'turn_20' },
    done: { kind: 'turn.done' },
  });
  expect(await logs.status('turn_49')).toMatchObject({ sequence: 49, open: false });
  expect(turns.taken()).toEqual({});

  const { conversations: other } = turns.worker();
  await firstCall(other, 49);
  turns.taken();
  await firstCall(other, 50);
  expect(turns.taken()).toEqual({ row: 1, history: 1 });

  // The rest of a chain whose beginning is in memory is read.
  const { conversations: third } = turns.worker();
  await firstCall(third, 30);
  turns.taken();
  expect(await firstCall(third, 50)).toHaveLength(49 * 3 + 1);
  expect(turns.taken()).toEqual({ row: 1, history: 1, chain: 1, archive: 1 });
});

const IN_ARCHIVE = { row: 1 };
const IN_TEMPORAL = { row: 1, start: 1, close: 1 };

test.each([
  ['firstAndLast', { ...IN_ARCHIVE, archive: 2 }, { ...IN_TEMPORAL, history: 1 }],
  ['status', { ...IN_ARCHIVE, archive: 1 }, IN_TEMPORAL],
  ['length', IN_ARCHIVE, { row: 1, close: 1, history: 1 }],
  ['all', { ...IN_ARCHIVE, archive: 1 }, { row: 1, history: 1 }],
] as const)(
  '%s reads the row of a turn once, and no more of an ended turn than it needs',
  async (what, archived, ended) => {
    const turns = new Turns();
    const [first] = sessionOf(2, turns);
    turns.archive(first!);
    const { logs } = turns.worker();
    const answers = [await logs[what]('turn_1')];
    expect(turns.taken()).toEqual(archived);
    answers.push(await logs[what]('turn_2'));
    expect(turns.taken()).toEqual(ended);
    // A turn that was read to its end is in memory.
    await logs.all('turn_2');
    turns.taken();
    expect(await logs[what]('turn_2')).toEqual(answers[1]);
    expect(turns.taken()).toEqual({});
  },
);

test('a reader of a turn that has ended and is not archived has all of its log, also if it was read before', async () => {
  const turns = new Turns();
  sessionOf(1, turns);
  const { logs } = turns.worker();
  expect(await logs.firstUnarchived('turn_1')).toBe(1);
  await logs.all('turn_1');
  expect(await logs.firstUnarchived('turn_1')).toBe(1);
});
