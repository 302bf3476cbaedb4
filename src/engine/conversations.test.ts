import { expect, test } from 'vitest';
import { continuation, TURN_ID, turnStart } from '../../test/support/random-turn.ts';
import { BlobNotFound, BlobsUnavailable, type BlobStore } from '../blobs/blob-store.ts';
import type { KernelCatalog } from '../catalog/catalog.ts';
import type { CallModelInput, HistoryEvent, TurnStart } from '../core/history.ts';
import { constantsOf } from '../core/model-call.ts';
import { turnCreated, Turn } from '../core/turn.ts';
import type { CallSource, ToolCall } from '../core/records/calls.ts';
import type { UnsequencedRecord } from '../core/records/log.ts';
import type { ModelMessage } from '../core/records/message.ts';
import type { SubAgent } from '../core/records/threads.ts';
import { subjectNamed } from '../core/subject.ts';
import type { TurnHistory } from '../temporal/history.ts';
import { callHash } from './call-hash.ts';
import { Conversations } from './conversations.ts';
import { TurnLogReader } from './turn-log-reader.ts';
import { OnceLog } from '../lib/once-log.ts';

const losses = new OnceLog({ warn: () => undefined });

const AT = '2026-11-21T08:00:00.000Z';
const never = new AbortController().signal;

function input(upTo: number, step: number): CallModelInput & { previousTurnId: null } {
  return {
    turnId: TURN_ID,
    sessionId: 'ses_1',
    threadId: 'main',
    runId: 'run_1',
    deadline: Infinity,
    previousTurnId: null,
    messageId: `msg_${step}`,
    createdAt: AT,
    step,
    upTo,
    recent: [''],
  };
}

/** The events of a history after its start: model calls, each with its message. */
function history(messages: string[]): HistoryEvent[] {
  return messages.flatMap((content, i): HistoryEvent[] => {
    const message: ModelMessage = {
      kind: 'model.message',
      id: `msg_${i}`,
      at: AT,
      threadId: 'main',
      content,
      refusal: '',
      reasoning: '',
      toolCalls: [],
      finishReason: 'stop',
    };
    return [
      {
        type: 'scheduled',
        eventId: 10 + i,
        at: AT,
        activity: { name: 'callModel', input: { ...input(i + 1, i), messageId: message.id } },
      },
      { type: 'ended', scheduledEventId: 10 + i, at: AT, end: { how: 'completed', records: [message] } },
    ];
  });
}

/** Conversations over a history that the test extends, and the offsets from which it was read. */
function conversationsOver(get: BlobStore['get'], logs: object = {}) {
  const events: HistoryEvent[] = [{ type: 'started', at: AT, start: turnStart() }, ...history(['one', 'two', 'three'])];
  const readsAfter: number[] = [];
  const fake: Pick<TurnHistory, 'readSince'> = {
    readSince: async (_turnId, _runId, after) => {
      readsAfter.push(after);
      await new Promise((resolve) => setTimeout(resolve, 5));
      return { events: events.slice(after), lastEventId: events.length };
    },
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only `get` is used
  const blobs = { get } as BlobStore;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- there are no earlier runs and no earlier turns
  const conversations = new Conversations({ losses, history: fake as TurnHistory, logs: logs as TurnLogReader, blobs });
  return { conversations, events, readsAfter };
}

const contentsOf = (records: Awaited<ReturnType<Conversations['load']>>) =>
  records.map((record) => (record.kind === 'model.message' ? record.content : record.kind));

test('two concurrent attempts load the same conversation, and neither corrupts that of the next call', async () => {
  const { conversations, events } = conversationsOver(() => Promise.reject(new Error('no blobs')));
  const lastTwo = events.splice(-2);
  await conversations.load(input(3, 2), 'run', never);
  events.push(...lastTwo);
  const whole = ['turn.created', 'one', 'two', 'three'];
  const both = [conversations.load(input(4, 3), 'run', never), conversations.load(input(4, 3), 'run', never)];
  for (const records of await Promise.all(both)) expect(contentsOf(records)).toEqual(whole);
  events.push(...history(['', '', '', 'four']).slice(-2));
  expect(contentsOf(await conversations.load(input(5, 4), 'run', never))).toEqual([...whole, 'four']);
});

test('a lost conversation of a request is an error that says so, an outage of its store one that passes', async () => {
  const conversation = { blob: 'f'.repeat(64) };
  let failure: Error | undefined = new BlobsUnavailable('away');
  const { conversations, events } = conversationsOver(() =>
    failure ? Promise.reject(failure) : Promise.resolve(Buffer.from(JSON.stringify({ items: [] }))),
  );
  events.splice(0, Infinity, { type: 'started', at: AT, start: turnStart({ conversation }) });
  const load = () => conversations.load({ ...input(1, 1), recent: [] }, 'run', never);
  await expect(load()).rejects.toThrow(BlobsUnavailable);
  failure = new BlobNotFound('ses_1', conversation.blob);
  await expect(load()).rejects.toThrow('the conversation of the request is lost: the blob store');
  failure = undefined;
  expect(await load()).toMatchObject([{ conversation: { given: { items: [] } } }]);
});

test('after a failure in the middle of a read, the turn is read again from its start', async () => {
  let reads = 0;
  const { conversations, events, readsAfter } = conversationsOver(() => {
    reads += 1;
    return reads === 1 ? Promise.reject(new Error('too many open files')) : Promise.resolve(Buffer.from('large'));
  });
  const lastTwo = events.slice(-2);
  const last = events.at(-1);
  if (last?.type !== 'ended' || last.end.how !== 'completed') throw new Error('no message');
  Object.assign(last.end.records[0] ?? {}, { content: { $blob: 'f'.repeat(64) } });
  // The cached state must not be a mix of the old and the new one.
  events.splice(-2);
  await conversations.load(input(3, 2), 'run', never);
  events.push(...lastTwo);
  await expect(conversations.load(input(4, 3), 'run', never)).rejects.toThrow('too many open files');
  expect(contentsOf(await conversations.load(input(4, 3), 'run', never))).toEqual([
    'turn.created',
    'one',
    'two',
    'large',
  ]);
  expect(readsAfter).toEqual([0, 5, 0]);
});

test('the conversation ahead of the history has the results of this worker, and changes nothing', async () => {
  const { conversations, events } = conversationsOver(() => Promise.reject(new Error('no blobs')));
  await conversations.load(input(4, 3), 'run', never);
  const [message] = history(['four']).flatMap((event) =>
    event.type === 'ended' && event.end.how === 'completed' ? event.end.records : [],
  );
  if (!message) throw new Error('no message');
  conversations.remember({ turnId: TURN_ID, stamp: 'stamp' }, [message]);
  const expected = { ...input(5, 4), runId: 'run', recent: ['stamp'] };
  expect(contentsOf((await conversations.ahead(expected, never)) ?? [])).toEqual([
    'turn.created',
    'one',
    'two',
    'three',
    'four',
  ]);
  for (const other of [{ runId: 'other' }, { upTo: 6 }, { recent: ['other'] }]) {
    expect(conversations.ahead({ ...expected, ...other }, never)).toBeUndefined();
  }
  // The history has accepted another attempt.
  events.push(...history(['', '', '', 'other four']).slice(-2));
  const load = conversations.load({ ...input(5, 4), recent: ['of the other'] }, 'run', never);
  expect(contentsOf(await load)).toEqual(['turn.created', 'one', 'two', 'three', 'other four']);
});

const agent: SubAgent = {
  threadId: 'thread_1',
  title: 'read',
  parent: { threadId: 'main', toolCallId: 'call_0' },
  depth: 1,
  specHash: 'b2',
  isRegistered: true,
  hasServers: false,
  iterations: 5,
};

/** The records of the message that starts it. */
const starting = [attempt(), { kind: 'thread.created' as const, at: AT, threadId: 'main', thread: agent, input: 'x' }];

test('a model call has the constants of its turn and of its thread', () => {
  const budget = { scope: 'session' as const, limit: { usd: 1 } };
  const owner = { subjectId: 'ann', draftRoles: ['tester'] };
  const start = turnStart({ previousTurnId: 'turn_0', sequence: 7, owner, isRun: true, agents: { a: 'b2' }, budget });
  const { sessionId } = start;
  const ofTurn = { sessionId, previousTurnId: 'turn_0', sequence: 7, isRun: true, agents: { a: 'b2' } };
  const constants = { ...ofTurn, sessionLimit: { usd: 1 } };
  expect(constantsOf(start)).toEqual({ ...constants, owner, specHash: 'a1' });
  // The agent is registered: the rights of the draft are not its own.
  const own = { owner: { ...owner, draftRoles: null }, specHash: 'b2', subAgent: agent };
  expect(constantsOf(start, agent)).toEqual({ ...constants, ...own });
});

test('the first model call brings the start of its turn, and a result the thread that it begins: nothing is read', async () => {
  const { conversations, readsAfter } = conversationsOver(() => Promise.reject(new Error('no blobs')));
  const first = { ...input(1, 1), recent: [], start: turnStart() };
  expect(await conversations.call(first, 'run')).toMatchObject({ messageId: 'msg_1', ...constantsOf(turnStart()) });
  await conversations.load(first, 'run', never);
  conversations.remember({ turnId: TURN_ID, stamp: 's' }, starting);
  const next = { ...input(3, 1), threadId: agent.threadId, recent: ['s'] };
  expect(await conversations.call(next, 'run')).toMatchObject(constantsOf(turnStart(), agent));
  // The record is among the others now.
  await conversations.load(next, 'run', never);
  expect(await conversations.call({ ...next, recent: [] }, 'run')).toMatchObject(constantsOf(turnStart(), agent));
  expect(readsAfter).toEqual([]);
});

test('a model call brings the results of kernel hosts: only their texts in the blob store are read', async () => {
  const blobsRead: string[] = [];
  const get = (_sessionId: string, blob: string) => {
    blobsRead.push(blob);
    return Promise.resolve(Buffer.from(`text of ${blob}`));
  };
  const { conversations, readsAfter } = conversationsOver(get);
  const first = { ...input(1, 1), recent: [], start: turnStart() };
  await conversations.call(first, 'run');
  await conversations.load(first, 'run', never);
  const response = {
    kind: 'tool.response' as const,
    at: AT,
    threadId: 'main',
    toolCallId: 'c',
    outcome: 'succeeded' as const,
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as `offload` stores it
  const records = [{ ...response, content: { $blob: 'b' } as unknown as string }];
  const next = { ...input(2, 2), recent: ['s'], ofHosts: [{ stamp: 's', records }] };
  await conversations.call(next, 'run');
  const loaded = await conversations.load(next, 'run', never);
  expect(loaded.at(-1)).toEqual({ ...response, content: 'text of b' });
  await conversations.load(next, 'run', never);
  expect(blobsRead).toEqual(['b']);
  expect(readsAfter).toEqual([]);
});

test('a worker that lacks the start of a run reads it with the conversation, once, also if the run has added nothing yet', async () => {
  for (const carried of [undefined, continuation({ ordinal: 4 })]) {
    const start = turnStart({ sequence: 7, ...(carried && { carry: carried }) });
    const earlier = [1, 2, 3, 4].map((ordinal) => ({ ordinal, record: attempt() }));
    const logs = { all: () => Promise.resolve(earlier) };
    const { conversations, events, readsAfter } = conversationsOver(() => Promise.reject(new Error('no blobs')), logs);
    events.splice(0, carried ? Infinity : 1, { type: 'started', at: AT, start });
    expect(await conversations.call(input(4, 3), 'run')).toMatchObject({ sequence: 7 });
    expect(await conversations.load(input(4, 3), 'run', never)).toHaveLength(4);
    expect(readsAfter).toEqual([0]);
  }
});

test('a thread is found by a worker that did not begin it: from the history, the run before or the turn before', async () => {
  const known = turnStart({ resumes: { pending: [], threads: [{ ...agent, steps: 1 }] } });
  const carried = turnStart({ carry: continuation({ ordinal: 4, threads: [{ steps: 1 }, { agent, steps: 1 }] }) });
  for (const start of [undefined, known, carried]) {
    const { conversations, events } = conversationsOver(() => Promise.reject(new Error('no blobs')));
    const ended: HistoryEvent = {
      type: 'ended',
      scheduledEventId: 10,
      at: AT,
      end: { how: 'completed', records: starting },
    };
    if (start) events.splice(0, Infinity, { type: 'started', at: AT, start });
    else events.splice(2, Infinity, ended);
    const call = conversations.call({ ...input(4, 1), threadId: agent.threadId }, 'run');
    expect(await call).toMatchObject({ specHash: 'b2', subAgent: agent });
    const other = conversations.call({ ...input(4, 1), threadId: 'thread_2' }, 'run');
    await expect(other).rejects.toThrow(`turn ${TURN_ID} has no thread thread_2`);
  }
});

test('the constants of a call are available where the texts of its turn cannot be read', async () => {
  const { conversations, events, readsAfter } = conversationsOver(() => Promise.reject(new Error('too large')));
  const last = events.at(-1);
  if (last?.type !== 'ended' || last.end.how !== 'completed') throw new Error('no message');
  Object.assign(last.end.records[0] ?? {}, { content: { $blob: 'f'.repeat(64) } });
  expect(await conversations.call(input(4, 3), 'run')).toMatchObject({ specHash: 'a1' });
  await expect(conversations.load(input(4, 3), 'run', never)).rejects.toThrow('too large');
  expect(readsAfter).toEqual([0]);
});

/** Three threads of one turn, each with a step per round, as one worker or several see them. */
function threeThreads(workers: number) {
  const threads = ['a', 'b', 'c'].map((threadId) => ({ ...agent, threadId, steps: 1 }));
  const start = turnStart({ resumes: { pending: [], threads } });
  const events: HistoryEvent[] = [{ type: 'started', at: AT, start }];
  /** The events that were read, of each read. */
  const reads: number[] = [];
  const fake: Pick<TurnHistory, 'readSince'> = {
    readSince: (_turnId, _runId, after) => {
      reads.push(events.length - after);
      return Promise.resolve({ events: events.slice(after), lastEventId: events.length });
    },
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- all texts are small, and there are no earlier turns
  const sources = { losses, history: fake as TurnHistory, logs: {} as TurnLogReader, blobs: {} as BlobStore };
  const all = Array.from({ length: workers }, () => new Conversations(sources));
  const stamps: string[] = [];
  const known = new Map<string, number>();
  let upTo = 1;
  /** A step of each thread: all load what they answer, then all results arrive. */
  const round = async (n: number): Promise<void> => {
    const calls = threads.map(({ threadId }, i): [Conversations, ReturnType<typeof input>] => {
      const recent = stamps.slice((known.get(threadId) ?? 1) - 1);
      known.set(threadId, upTo);
      const call = { ...input(upTo, n + 1), threadId, messageId: `msg_${n}_${threadId}`, recent };
      return [all[(n + i) % workers]!, call];
    });
    const loaded = await Promise.all(calls.map(([worker, call]) => worker.load(call, 'run_1', never)));
    for (const records of loaded) expect(records).toHaveLength(upTo);
    for (const [worker, call] of calls) {
      const record: ModelMessage = { ...attempt(), id: call.messageId, threadId: call.threadId };
      worker.remember({ turnId: TURN_ID, stamp: call.messageId }, [record]);
      stamps.push(call.messageId);
      const eventId = events.length + 1;
      const end = { how: 'completed' as const, records: [record] };
      events.push(
        { type: 'scheduled', eventId, at: AT, activity: { name: 'callModel', input: call } },
        { type: 'ended', scheduledEventId: eventId, at: AT, end },
      );
      upTo += 1;
    }
  };
  return { round, reads, events };
}

test('three threads at work on one worker read the history once, at their beginning', async () => {
  const { round, reads } = threeThreads(1);
  for (let n = 0; n < 20; n++) await round(n);
  expect(reads).toEqual([1]);
});

test('three threads on two workers read each event once per worker', async () => {
  const { round, reads, events } = threeThreads(2);
  for (let n = 0; n < 20; n++) await round(n);
  expect(reads.reduce((sum, count) => sum + count, 0)).toBeLessThanOrEqual(2 * events.length);
  expect(reads.length).toBeLessThanOrEqual(2 * 20);
});

test('the turns of another session are not loaded', async () => {
  const start = (turnId: string, sessionId: string) => ({ ...turnStart(), turnId, sessionId, previousTurnId: null });
  const logOf = (turnId: string) => [{ ordinal: 1, record: turnCreated(start(turnId, 'ses_ann')) }];
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only these members are used
  const logs = {
    ended: (turnId: string) => Promise.resolve(logOf(turnId)),
    async *chain(turnId: string) {
      yield await Promise.resolve({ turnId, previousTurnId: null, entries: logOf(turnId) });
    },
  } as unknown as TurnLogReader;
  const events: HistoryEvent[] = [{ type: 'started', at: AT, start: turnStart() }];
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only this member is used
  const history = { readSince: () => Promise.resolve({ events, lastEventId: 1 }) } as unknown as TurnHistory;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- there are no blobs
  const conversations = new Conversations({ losses, logs, history, blobs: {} as BlobStore });
  const beginning = (sessionId: string, previousTurnId: string | null, after = previousTurnId) =>
    conversations.beginning({ ...start('turn_new', sessionId), previousTurnId, after, sequence: 2 }, never);
  expect(await beginning('ses_ann', 'turn_old')).toHaveLength(2);
  for (const turnId of ['turn_old', 'turn_other']) {
    await expect(beginning('ses_bob', turnId)).rejects.toThrow(`turn ${turnId} is not of session ses_bob`);
    await expect(beginning('ses_bob', null, turnId)).rejects.toThrow(`turn ${turnId} is not of session ses_bob`);
    const load = conversations.load({ ...input(1, 1), sessionId: 'ses_bob', previousTurnId: turnId }, 'run_1', never);
    await expect(load).rejects.toThrow(`turn ${turnId} is not of session ses_bob`);
  }
});

/** The turns of a session with so many of them, of which some begin with a summary; `read` names those that were read. */
function longSession(
  turns: number,
  summarized: { turn: number; threadId: string }[],
  startOf: (n: number) => Partial<TurnStart> = () => ({}),
) {
  const idOf = (n: number) => `turn_${n}`;
  const previousOf = (n: number) => (n > 1 ? idOf(n - 1) : null);
  const recordsOf = (n: number): UnsequencedRecord[] => [
    turnCreated({ ...turnStart(startOf(n)), sessionId: 'ses_1', turnId: idOf(n), previousTurnId: previousOf(n) }),
    ...summarized
      .filter(({ turn }) => turn === n)
      .map(({ threadId }) => ({
        kind: 'context.compacted' as const,
        at: AT,
        threadId,
        through: 0,
        summary: 'S',
        tokensBefore: 2,
        tokensAfter: 1,
      })),
  ];
  const read: string[] = [];
  const logs = {
    async *chain(last: string) {
      for (let n = Number(last.slice(5)); n > 0; n--) {
        read.push(idOf(n));
        const entries = recordsOf(n).map((record, i) => ({ ordinal: i + 1, record: { id: `evt_${i}`, ...record } }));
        yield await Promise.resolve({ turnId: idOf(n), previousTurnId: previousOf(n), entries });
      }
    },
  };
  const events: HistoryEvent[] = [
    { type: 'started', at: AT, start: turnStart({ ...startOf(turns), turnId: idOf(turns) }) },
  ];
  const history = { readSince: () => Promise.resolve({ events, lastEventId: 1 }) };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only these members are used
  const sources = { logs, history, blobs: {} } as unknown as ConstructorParameters<typeof Conversations>[0];
  const conversations = new Conversations(sources);
  const load = (threadId = 'main') =>
    conversations.load({ ...input(1, 1), threadId, previousTurnId: idOf(turns - 1) }, 'run_1', never);
  const author = () => conversations.newestAuthor({ ...input(1, 1), previousTurnId: idOf(turns - 1) }, 'run_1', never);
  return { load, author, read };
}

test('the newest user message is found on the chain of turns, also before a summary', async () => {
  const answers = [
    { type: 'user.tool_approval' as const, threadId: 'main', toolCallId: 'a', approval: { status: 'allow' as const } },
  ];
  const answered = (n: number) => (n > 2 ? { input: answers, createdBy: subjectNamed('bob') } : {});
  const { author, read } = longSession(5, [{ turn: 4, threadId: 'main' }], answered);
  expect(await author()).toBe('ann');
  expect(read).toEqual(['turn_4', 'turn_3', 'turn_2']);
  expect(await longSession(5, [], (n) => (n === 5 ? { createdBy: subjectNamed('cleo') } : {})).author()).toBe('cleo');
});

test('the 50th turn of a session reads the turns since the last summary of its thread, and no other', async () => {
  const summarized = [
    { turn: 20, threadId: 'main' },
    { turn: 46, threadId: 'main' },
    { turn: 48, threadId: 'thread_1' },
  ];
  const { load, read } = longSession(50, summarized);
  expect(await load()).toHaveLength(4 + 1 + 2);
  expect(read).toEqual(['turn_49', 'turn_48', 'turn_47', 'turn_46']);
  expect(await load('thread_1')).toHaveLength(2 + 1 + 1);
});

/** A call of a tool; all calls have the same id, and by default the same arguments. */
function callOf(name: string, args = '{}'): ToolCall {
  const info = { type: 'mcp' as const, serverId: 'srv_1', serverName: 'orders', name };
  const call = { id: 'call_0', name, info, arguments: args };
  return { ...call, route: { to: 'server', effect: 'once', approval: false, callHash: callHash(call) } };
}

/** The message of an attempt that calls these tools. */
function attempt(...toolCalls: ToolCall[]): ModelMessage {
  return {
    kind: 'model.message',
    id: 'msg_0',
    at: AT,
    threadId: 'main',
    content: '',
    refusal: '',
    reasoning: '',
    toolCalls,
    finishReason: 'tool_calls',
  };
}

/** How the workflow refers to a call of the attempt that it has accepted. */
function sourceOf(stamp: string, call: ToolCall, index = 0): CallSource {
  if (call.route.to !== 'server') throw new Error('nothing to run');
  const { effect, callHash: hash } = call.route;
  return { turnId: TURN_ID, messageId: 'msg_0', stamp, index, run: { effect, callHash: hash } };
}

/** A worker's conversations over the log of a turn with one message; `reads` counts the reads of the log. */
function worker(accepted: ModelMessage) {
  const events: HistoryEvent[] = [
    { type: 'started', at: AT, start: turnStart() },
    {
      type: 'scheduled',
      eventId: 10,
      at: AT,
      activity: { name: 'callModel', input: { ...input(1, 1), messageId: accepted.id } },
    },
    { type: 'ended', scheduledEventId: 10, at: AT, end: { how: 'completed', records: [accepted] } },
  ];
  const reads = { forwards: 0, backwards: 0, since: 0 };
  const fake: Pick<TurnHistory, 'read' | 'readBackwards' | 'readSince'> = {
    readSince: async () => {
      reads.since += 1;
      return await Promise.resolve({ events, lastEventId: events.length });
    },
    async *read() {
      reads.forwards += 1;
      yield await Promise.resolve({ events, lastEventId: events.length });
    },
    async *readBackwards() {
      reads.backwards += 1;
      for (const event of events.toReversed()) yield await Promise.resolve([event]);
    },
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only these members are used
  const turnHistory = fake as TurnHistory;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the turn is not in the index yet
  const catalog = { turns: { get: () => Promise.resolve(undefined) } } as unknown as KernelCatalog;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- all texts are small
  const blobs = {} as BlobStore;
  const logs = new TurnLogReader({ catalog, history: turnHistory, losses, blobs });
  return { conversations: new Conversations({ losses, history: turnHistory, logs, blobs }), events, reads };
}

const list = callOf('list_orders');
const remove = callOf('delete_all_orders');

test('a worker that has cached a rejected attempt runs the call of the accepted one', async () => {
  const { conversations } = worker(attempt(list));
  conversations.remember({ turnId: TURN_ID, stamp: 'rejected' }, [attempt(remove)]);
  const run = { source: sourceOf('accepted', list), sessionId: 'ses_1', runId: 'run_1' };
  expect((await conversations.toolCall(run)).name).toBe('list_orders');
});

test('if one worker made two attempts, the call of the accepted one is run, in any order of the attempts', async () => {
  const { conversations, reads } = worker(attempt(list));
  conversations.remember({ turnId: TURN_ID, stamp: 'accepted' }, [attempt(list)]);
  conversations.remember({ turnId: TURN_ID, stamp: 'rejected' }, [attempt(remove)]);
  const run = { source: sourceOf('accepted', list), sessionId: 'ses_1', runId: 'run_1' };
  expect((await conversations.toolCall(run)).name).toBe('list_orders');
  expect(reads).toEqual({ forwards: 0, backwards: 0, since: 0 });
});

test('the call of its own message is run from a result of a kernel host with several messages', async () => {
  const { conversations } = worker(attempt(list));
  const [first, second] = [{ ...attempt(remove), id: 'msg_before' }, attempt(list)];
  conversations.remember({ turnId: TURN_ID, stamp: 'accepted' }, [first, second]);
  const run = { source: sourceOf('accepted', list), sessionId: 'ses_1', runId: 'run_1' };
  expect((await conversations.toolCall(run)).name).toBe('list_orders');
});

test('the call that runs after an approval is the approved one', async () => {
  const { conversations, events } = worker(attempt(list));
  conversations.remember({ turnId: TURN_ID, stamp: 'rejected' }, [attempt(remove)]);
  const source = sourceOf('accepted', list);
  const pending = [{ threadId: 'main', toolCallId: list.id, needs: 'approval' as const, source }];
  events.push({ type: 'closed', at: AT, close: { how: 'completed', result: { status: 'done', pending } } });
  // After a restart, or in the session's next run, the pending calls are read from the last record of the log.
  const projection = new Turn();
  const { record } = events.flatMap((event) => projection.feed(event)).at(-1) ?? {};
  if (record?.kind !== 'turn.done' || record.end.status !== 'done') throw new Error('the turn is not done');
  const [call] = record.end.requiredActions.flatMap((action) => action.calls);
  if (!call) throw new Error('there is no pending call');
  expect((await conversations.toolCall({ source: call.source, sessionId: 'ses_1', runId: 'run_1' })).name).toBe(
    'list_orders',
  );
});

test.each([
  ['another tool', remove],
  ['other arguments', callOf('list_orders', '{"all":true}')],
])('a call of %s than the one that was decided on is not run', async (_, decided) => {
  const { conversations } = worker(attempt(list));
  const run = { source: sourceOf('accepted', decided), sessionId: 'ses_1', runId: 'run_1' };
  await expect(conversations.toolCall(run)).rejects.toThrow('not the one that was decided on');
});

test('a process that has read the log of the turn finds the call in it', async () => {
  const { conversations, reads } = worker(attempt(list));
  const { sessionId } = turnStart();
  const place = { turnId: TURN_ID, sessionId, threadId: 'main', runId: 'run_1' };
  await conversations.soFar(place, new AbortController().signal);
  const run = { source: sourceOf('accepted', list), sessionId, runId: 'run_1' };
  expect((await conversations.toolCall(run)).name).toBe('list_orders');
  expect(reads).toEqual({ forwards: 0, backwards: 0, since: 1 });
});

test('the calls of a message that another worker has produced are found with one read of its log', async () => {
  const calls = Array.from({ length: 50 }, (_, n) => callOf('look', JSON.stringify({ n })));
  const { conversations, reads } = worker(attempt(...calls));
  const run = (call: ToolCall, index: number) =>
    conversations.toolCall({ source: sourceOf('accepted', call, index), sessionId: 'ses_1', runId: 'run_1' });
  expect(await Promise.all(calls.map(run))).toEqual(calls);
  expect(await run(list, 0).catch(() => 'rejected')).toBe('rejected');
  expect(reads).toEqual({ forwards: 0, backwards: 1, since: 0 });
});

test('the connection that a call relies on is read from the last summary of its thread on', async () => {
  const source = { turnId: TURN_ID, messageId: 'msg_0', stamp: 's', index: 0 };
  const start = turnStart({ sessionId: 'ses_1', previousTurnId: 'turn_1' });
  const summary = {
    kind: 'context.compacted',
    threadId: 'main',
    summary: 'short',
    connections: [{ serverId: 's', id: 'A' }],
  };
  const read: string[] = [];
  const logs = {
    chain: async function* () {
      for (const [turnId, previousTurnId, ...records] of [
        ['turn_1', 'turn_0', summary],
        ['turn_0', null],
      ] as const) {
        read.push(turnId);
        yield await Promise.resolve({ turnId, previousTurnId, entries: records.map((record) => ({ record })) });
      }
    },
  };
  const reliedOn = async (...own: object[]) => {
    const { conversations, events } = conversationsOver(() => Promise.reject(new Error('no blobs')), logs);
    events.splice(0, Infinity, { type: 'started', at: AT, start }, ...history(['calls']));
    const last = events.at(-1);
    if (last?.type !== 'ended' || last.end.how !== 'completed') throw new Error('no message');
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what else it has is not read
    last.end.records.unshift(...(own as typeof last.end.records));
    return [...(await conversations.reliedOn({ ...input(1, 0), source }, 's', never))];
  };
  expect(await reliedOn(summary)).toEqual(['A']);
  expect(read).toEqual([]);
  expect(await reliedOn()).toEqual(['A']);
  expect(read).toEqual(['turn_1']);
});

test('the log of a turn is read from the end of what was read before', async () => {
  const { conversations, events, readsAfter } = conversationsOver(() => Promise.reject(new Error('no blobs')));
  events[0] = { type: 'started', at: AT, start: turnStart({ sessionId: 'ses_1' }) };
  const lastTwo = events.splice(-2);
  const soFar = async () => contentsOf(await conversations.soFar(input(0, 0), never));
  expect(await soFar()).toEqual(['turn.created', 'one', 'two']);
  events.push(...lastTwo);
  expect(await soFar()).toEqual(['turn.created', 'one', 'two', 'three']);
  expect(readsAfter).toEqual([0, 5]);
  // A conversation is whole after it.
  expect(contentsOf(await conversations.load(input(4, 3), 'run_1', never))).toHaveLength(4);
});

test('the log of a turn begins with the part before it has continued as new', async () => {
  const earlier = [1, 2, 3, 4].map((ordinal) => ({ ordinal, record: attempt() }));
  const logs = { all: () => Promise.resolve(earlier) };
  const { conversations, events } = conversationsOver(() => Promise.reject(new Error('no blobs')), logs);
  events.splice(0, Infinity, { type: 'started', at: AT, start: turnStart({ carry: continuation({ ordinal: 3 }) }) });
  expect(await conversations.soFar(input(0, 0), never)).toHaveLength(3);
});
