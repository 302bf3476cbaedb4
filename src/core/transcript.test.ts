import { fc } from '../../test/support/fast-check.ts';
import { expect, test } from 'vitest';
import { randomTurn, turnStart, TURN_ID } from '../../test/support/random-turn.ts';
import { messageWith, modelMessage } from '../../test/support/model-message.ts';
import { LOST_RECORD, lostRecord } from './lost-record.ts';
import { emptyText } from './message.ts';
import { turnCreated, Turn } from './turn.ts';
import { connectionsOf, connectionsReliedOn, CONNECTION_REPLACED, transcript, foundTools } from './transcript.ts';
import type { UnsequencedRecord } from './records/log.ts';
import type { PendingCall } from './records/pending.ts';
import type { ModelMessage } from './records/message.ts';

/** Checks what a strict provider rejects: see the rules of the chat completions protocol on `tool_calls`. */
function expectStrict(items: ReturnType<typeof transcript>): void {
  let open: string[] = [];
  for (const item of items) {
    if (item.role === 'tool') {
      expect(open).toContain(item.toolCallId);
      open = open.filter((id) => id !== item.toolCallId);
      continue;
    }
    expect(open).toEqual([]);
    if (item.role === 'assistant') {
      expect(item.message.content + item.message.refusal + item.message.toolCalls.map(({ id }) => id).join()).not.toBe(
        '',
      );
      open = item.message.toolCalls.map(({ id }) => id);
      expect(new Set(open).size).toBe(open.length);
    }
  }
  expect(open).toEqual([]);
}

test('every call of every turn has exactly one result, which directly follows its message', () => {
  fc.assert(
    fc.property(randomTurn(), (happenings) => {
      const projection = new Turn();
      const records = happenings
        .flatMap((one) => ('event' in one ? projection.feed(one.event) : []))
        .map(({ record }) => record);
      expectStrict(transcript(records, 'main'));
      // A turn still in progress: any prefix of the log between two steps.
      for (let n = 1; n < records.length; n++) expectStrict(transcript(records.slice(0, n), 'main'));
    }),
  );
});

test('the last question of a call decides what a response is: an answer to its server, or its result', () => {
  const call = { threadId: 'main', toolCallId: 'p1' };
  const source = { turnId: TURN_ID, messageId: 'msg_1', stamp: 's', index: 0 };
  const edited = { arguments: '{"amount":1}', hash: 'h' };
  const pending = { ...call, needs: 'response' as const, source, edited };
  const route = { to: 'server', effect: 'once', approval: true, callHash: 'h' } as const;
  const info = { type: 'mcp', serverId: 's', serverName: 's', name: 'pay' } as const;
  const message: UnsequencedRecord = {
    kind: 'model.message',
    id: 'msg_1',
    at: '',
    threadId: 'main',
    content: '',
    refusal: '',
    reasoning: '',
    finishReason: 'tool_calls',
    toolCalls: [{ id: 'p1', name: 'pay', arguments: '{"amount":5}', info, route }],
  };
  const asks = (question: Pick<PendingCall, 'elicitation' | 'unknownOutcome'>): UnsequencedRecord => ({
    kind: 'tool.response_required',
    at: '',
    threadId: 'main',
    calls: [{ ...pending, ...question }],
  });
  const responds = (content: string): UnsequencedRecord => {
    const { id: _, ...created } = turnCreated(turnStart({ input: [{ type: 'user.tool_response', ...call, content }] }));
    return created;
  };
  const told = (...records: UnsequencedRecord[]) => {
    const [, item] = transcript([message, ...records], 'main');
    return item?.role === 'tool' ? item.content : undefined;
  };
  const asked = [asks({ elicitation: { question: '{}', state: { blob: 'b' } } }), responds('{"action":"accept"}')];
  expect(told(...asked)).toMatch('not completed here');
  const lost = asks({ unknownOutcome: 'Nobody knows.' });
  expect(told(...asked, lost)).toBe('Nobody knows.');
  expect(told(...asked, lost, responds('It was paid.'))).toMatch(/It ran with: {"amount":1}\n\nIt was paid\.$/);
});

function found(names: string[], threadId = 'main'): UnsequencedRecord {
  return {
    kind: 'tool.response',
    at: '',
    threadId,
    toolCallId: 'c',
    outcome: 'succeeded',
    content: '',
    foundTools: names.map((name) => ({ server: 's', name })),
  };
}

function namesOf(records: UnsequencedRecord[]): string[] {
  return foundTools(records, 'main').map(({ name }) => name);
}

test('the tools that a thread has found stay in their order, each once, and are not visible to other threads', () => {
  expect(namesOf([])).toEqual([]);
  expect(namesOf([found(['a', 'b']), found(['z'], 'other'), found(['c', 'a'])])).toEqual(['a', 'b', 'c']);
});

test('the last ones of too many found tools stay', () => {
  const names = Array.from({ length: 70 }, (_, i) => `t${i}`);
  expect(namesOf([found(names)])).toEqual(names.slice(-64));
  // A tool that was dropped can be found again.
  expect(namesOf([found(names), found(['t0'])])).toEqual([...names.slice(-63), 't0']);
});

test('an answer that does not fit is followed by the reasons, also if it was empty', () => {
  const message = (content: string, problem: string): UnsequencedRecord => ({
    kind: 'model.message',
    id: '',
    at: '',
    threadId: 'main',
    ...emptyText(),
    content,
    toolCalls: [],
    finishReason: 'stop',
    structured: { fits: false, problem },
  });
  const items = transcript([message('7', 'must be object'), message('', 'it is not valid JSON')], 'main');
  const reason = (problem: string) => ({ role: 'user', content: [{ text: expect.stringContaining(problem) }] });
  expect(items).toMatchObject([{ role: 'assistant' }, reason('must be object'), reason('it is not valid JSON')]);
});

test('a call without a result, which may be in a record that is lost, is not said to be not executed', () => {
  const message = messageWith(...['c1', 'c2'].map(() => ({ to: 'client' as const })));
  const place = { turnId: TURN_ID, isLast: false, previousTurnId: null, specHash: 'h', isRun: false };
  const owner = { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' };
  const lost = (ordinal: number) =>
    lostRecord({ ...place, ordinal, sessionId: 'ses_1', createdAt: '2026-01-01T00:00:00.000Z', owner });
  const response = { kind: 'tool.response', id: 'e', at: '', threadId: 'main', outcome: 'succeeded' } as const;
  const later = {
    ...message,
    id: 'msg_2',
    toolCalls: message.toolCalls.map((call) => ({ ...call, id: `${call.id}_2` })),
  };
  const records = [lost(1), message, lost(3), { ...response, toolCallId: 'call_1', content: 'done' }, later];
  expect(transcript(records, 'main').map((item) => ('message' in item ? item.message.content : item.content))).toEqual([
    [{ type: 'text', text: LOST_RECORD }],
    '',
    expect.stringContaining('The outcome of this tool call is unknown'),
    'done',
    LOST_RECORD,
    '',
    expect.stringContaining('was not executed here'),
    expect.stringContaining('was not executed here'),
  ]);
});

/** A call of a server with state, and its result. */
function ranOn(connectionId: string | undefined, toolCallId: string, threadId = 'main'): UnsequencedRecord[] {
  const connection = connectionId === undefined ? {} : { connection: { serverId: 's', id: connectionId } };
  const result = { outcome: 'succeeded' as const, content: 'seen', ...connection };
  const info = { type: 'mcp', serverId: 's', serverName: 's', name: 'look' } as const;
  const route = { to: 'server', effect: 'retry', approval: false, callHash: 'h' } as const;
  return [
    modelMessage({ threadId, toolCalls: [{ id: toolCallId, name: 'look', arguments: '{}', info, route }] }),
    { kind: 'tool.response', at: '', threadId, toolCallId, ...result },
  ];
}

/** The calls of a thread whose results say that the state at their server is lost. */
function toldLost(records: UnsequencedRecord[], threadId = 'main'): string[] {
  const items = transcript(records, threadId);
  return items.flatMap((item) =>
    item.role === 'tool' && item.content === `${CONNECTION_REPLACED}\nseen` ? [item.toolCallId] : [],
  );
}

test('the first result of a connection that has replaced another one has a note on it', () => {
  const [a, b] = [() => ranOn('A', 'c1'), () => ranOn('B', 'c2')];
  expect(toldLost([...a(), ...ranOn('A', 'c2')])).toEqual([]);
  expect(toldLost([...a(), ...b(), ...ranOn('B', 'c3'), ...ranOn('C', 'c4')])).toEqual(['c2', 'c4']);
  // An unknown connection adds no note.
  expect(toldLost([...ranOn(undefined, 'c1'), ...b()])).toEqual([]);
  expect(toldLost([...a(), ...ranOn(undefined, 'c2'), ...ranOn('A', 'c3')])).toEqual([]);
});

test('each thread gets notes on its own state, and one without any on that of the conversation', () => {
  const records = [...ranOn('A', 'c1'), ...ranOn('B', 'c2', 'sub'), ...ranOn('B', 'c3', 'sub'), ...ranOn('B', 'c4')];
  expect(toldLost(records, 'sub')).toEqual(['c2']);
  expect(toldLost(records)).toEqual(['c4']);
});

test('a compaction keeps the connections of what it replaces', () => {
  const { last } = connectionsOf([...ranOn('A', 'c1', 'sub'), ...ranOn('B', 'c2')], 'main');
  expect(last).toEqual([{ serverId: 's', id: 'B' }]);
  const compacted: UnsequencedRecord = {
    kind: 'context.compacted',
    at: '',
    threadId: 'main',
    through: 1,
    summary: 'It looked.',
    tokensBefore: 2,
    tokensAfter: 1,
    connections: last,
  };
  expect(toldLost([compacted, ...ranOn('C', 'c3')])).toEqual(['c3']);
  expect(toldLost([compacted, ...ranOn('B', 'c3')])).toEqual([]);
});

test('a call relies on the connection of the last call before its message, of its own thread first, and on those since', () => {
  const message = messageWith();
  const ranOn = (id: string, { thread = 'main', server = 's' } = {}) =>
    ({ kind: 'tool.response', threadId: thread, connection: { serverId: server, id } }) as UnsequencedRecord;
  const reliedOn = (before: UnsequencedRecord[], since: UnsequencedRecord[] = []) => [
    ...connectionsReliedOn([...before, message, ...since], { threadId: 'main', messageId: message.id, serverId: 's' }),
  ];
  const ofSub = { thread: 'sub' };
  expect(reliedOn([])).toEqual([]);
  expect(reliedOn([ranOn('A', { server: 'other' })])).toEqual([]);
  expect(reliedOn([ranOn('A'), ranOn('B')])).toEqual(['B']);
  // Another call of the message has met the new connection first: the deciders of this one were not told.
  expect(reliedOn([ranOn('A')], [ranOn('B')])).toEqual(['A', 'B']);
  expect(reliedOn([], [ranOn('A')])).toEqual(['A']);
  // The connections of another thread since then do not concern the thread's own state.
  expect(reliedOn([ranOn('A'), ranOn('B', ofSub)], [ranOn('C', ofSub)])).toEqual(['A']);
  expect(reliedOn([ranOn('B', ofSub)])).toEqual(['B']);
  expect(reliedOn([], [ranOn('B', ofSub)])).toEqual(['B']);
});

test('in a branch without the calls of a turn the model is told which one has waited behind another', () => {
  const asking = { to: 'server', effect: 'once', approval: true, callHash: 'h', order: { server: 's' } } as const;
  const message = messageWith(asking, { ...asking, approval: false });
  const source = { turnId: TURN_ID, messageId: message.id, stamp: 's', index: 0 };
  const call = { threadId: 'main', toolCallId: 'call_0', needs: 'approval' as const, source };
  const records: UnsequencedRecord[] = [
    message,
    { kind: 'tool.approval_required', at: '', threadId: 'main', calls: [call] },
  ];
  const told = transcript(records, 'main').flatMap((item) => (item.role === 'tool' ? [item.content] : []));
  expect(told).toEqual([
    expect.stringContaining('was not approved'),
    expect.stringContaining('it waited for an earlier one'),
  ]);
});

test('a call that repeats the id of an earlier one does not take the result of that away', () => {
  const message = messageWith({ to: 'server', effect: 'once', approval: false, callHash: 'h' });
  const [id = ''] = message.toolCalls.map((call) => call.id);
  const response = { kind: 'tool.response', at: '', threadId: 'main', toolCallId: id, outcome: 'succeeded' } as const;
  const items = transcript([message, { ...response, content: 'paid' }, { ...message, id: 'msg_2' }], 'main');
  const contents = items.flatMap((item) => (item.role === 'tool' ? [item.content] : []));
  expect(contents[0]).toBe('paid');
  expectStrict(items);
});

test('an answer of audio alone is in the conversation as what was said', () => {
  const audio = { transcript: 'Hello.' } as NonNullable<ModelMessage['audio']>;
  expect(transcript([modelMessage({ content: '', audio })], 'main')).toMatchObject([
    { role: 'assistant', message: { content: 'Hello.' } },
  ]);
});

/** The texts of a conversation: what was said to the model, its own messages, and the results of its calls. */
function textsOf(items: ReturnType<typeof transcript>): string[] {
  return items.map((item) => {
    if (item.role === 'assistant') return `model: ${item.message.content}`;
    if (item.role === 'tool') return `${item.toolCallId}: ${item.content}`;
    return item.content.map((part) => (part.type === 'text' ? part.text : part.name)).join();
  });
}

const AT = '2026-12-01T08:00:00.000Z';
const SERVER = { to: 'server', effect: 'once', approval: false, callHash: 'h' } as const;

function began(threadId: string, input: string): UnsequencedRecord {
  const parent = { threadId: 'main', toolCallId: 'call_0' };
  const thread = { threadId, title: 't', parent, depth: 1, specHash: 'a', hasServers: false, iterations: 5 };
  return { kind: 'thread.created', at: AT, thread, input };
}

function result(threadId: string, toolCallId: string, content: string, more: object = {}): UnsequencedRecord {
  return { kind: 'tool.response', at: AT, threadId, toolCallId, outcome: 'succeeded', content, ...more };
}

/** A message of a thread with one call, whose id is the same in each thread. */
function calls(threadId: string, content: string): UnsequencedRecord {
  return { ...messageWith(SERVER), id: `msg_${content}`, threadId, content };
}

test('a thread has its own conversation, and nothing of those of others, whose calls may have the same ids', () => {
  const input = [
    { type: 'user.message' as const, content: 'hello' },
    { type: 'user.tool_response' as const, threadId: 'thr_a', toolCallId: 'call_0', content: 'answered' },
  ];
  const records: UnsequencedRecord[] = [
    turnCreated(turnStart({ input })),
    calls('main', 'root'),
    began('thr_a', 'task a'),
    began('thr_b', 'task b'),
    calls('thr_a', 'a'),
    calls('thr_b', 'b'),
    { kind: 'user.steered', at: AT, content: 'wait', id: 'steer_1' } as never,
    result('thr_b', 'call_0', 'of b'),
    result('thr_a', 'call_0', 'of a'),
    result('main', 'call_0', 'of root'),
  ];
  expect(['main', 'thr_a', 'thr_b'].map((threadId) => textsOf(transcript(records, threadId)))).toEqual([
    ['hello', 'model: root', 'call_0: of root', 'wait'],
    ['task a', 'model: a', 'call_0: of a'],
    ['task b', 'model: b', 'call_0: of b'],
  ]);
});

test('the result of a client that a later turn brings is that of its call', () => {
  const input = [
    { type: 'user.tool_response' as const, threadId: 'main', toolCallId: 'call_0', content: 'from the client' },
  ];
  const records = [calls('main', 'root'), turnCreated(turnStart({ input }))];
  expect(textsOf(transcript(records, 'main'))).toEqual(['model: root', 'call_0: from the client']);
});

test('a result has its files, and its whole text if it was cut', () => {
  const files = [{ type: 'file' as const, name: 'a.txt', mimeType: 'text/plain', bytes: 1, base64: 'YQ==' }];
  const fullText = { blob: 'b', bytes: 9 };
  const items = (more: object) => transcript([calls('main', 'root'), result('main', 'call_0', 'x', more)], 'main')[1];
  expect(items({ files, fullText })).toMatchObject({ content: 'x', files, fullText });
  expect(Object.keys(items({}) ?? {}).toSorted()).toEqual(['content', 'files', 'name', 'role', 'toolCallId']);
});

test('the model is told what a stopped sub-agent had begun, and no more of one that has ended by itself', () => {
  const lines = (outcome: string, fromThread?: string) => {
    const end = result('main', 'call_0', 'over', { outcome, ...(fromThread && { fromThread }) });
    const records = [
      calls('main', 'root'),
      began('thr_a', 'task'),
      calls('thr_a', 'a'),
      result('thr_a', 'call_0', 'x'),
      end,
    ];
    return textsOf(transcript(records, 'main')).at(-1)?.split('\n');
  };
  expect(lines('cancelled', 'thr_a')).toEqual(['call_0: over', 'It had called these tools:', '- look({}): done']);
  expect([lines('failed', 'thr_a'), lines('cancelled'), lines('cancelled', 'thr_b')]).toEqual(
    Array.from({ length: 3 }, () => ['call_0: over']),
  );
});

test('a call without a result has waited behind another only if its server runs calls in their order', () => {
  const text = (route: object) => textsOf(transcript([messageWith({ ...SERVER, ...route })], 'main'))[1];
  expect(text({})).toContain('was not approved');
  for (const route of [{ order: { server: 's' } }, { startsTask: true }])
    expect(text(route)).toContain('it waited for an earlier one');
});
