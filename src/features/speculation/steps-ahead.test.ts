import { getEventListeners } from 'node:events';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { messageWith } from '../../../test/support/model-message.ts';
import { turnStart } from '../../../test/support/random-turn.ts';
import type { ModelCall } from '../../core/model-call.ts';
import { turnCreated } from '../../core/turn.ts';
import type { ToolRoute } from '../../core/records/calls.ts';
import type { NewRecord, UnsequencedRecord } from '../../core/records/log.ts';
import { InProcessBus } from '../../live/in-process-bus.ts';
import type { ModelChunk } from '../../models/provider.ts';
import { Metrics } from '../../telemetry/metrics.ts';
import type { AgentTool } from '../../tools/toolset.ts';
import type { EarlyResult } from './early-results.ts';
import { COMPACTION_PART } from '../compaction/compact-conversation.ts';
import { EARLY_MS, StepsAhead, type ClaimedModelCall } from './steps-ahead.ts';

const AT = '2026-01-01T00:00:00.000Z';
const STAMP = 'stamp of the message';
const never = new AbortController().signal;

const input: ModelCall = {
  turnId: 'turn_1',
  sessionId: 'ses_1',
  owner: { subjectId: 'ann', draftRoles: null },
  threadId: 'main',
  runId: 'run_1',
  deadline: Infinity,
  previousTurnId: null,
  sequence: 1,
  specHash: 'a1',
  messageId: 'msg_1',
  createdAt: AT,
  step: 1,
  upTo: 1,
  recent: [],
};

const server = { to: 'server', effect: 'retry', approval: false, callHash: 'h' } as const;

function resultOf(toolCallId: string): Extract<NewRecord, { kind: 'tool.response' }> {
  return { kind: 'tool.response', at: AT, threadId: 'main', toolCallId, outcome: 'succeeded', content: 'seen' };
}

/** The tool `look`, whose calls may begin ahead unless it is one that `cannot`. */
function prepared(cannot?: 'cannot', callsInSequence?: boolean): Parameters<StepsAhead['messageEnded']>[3] {
  const info = { type: 'mcp', serverId: 's', serverName: 's', name: 'look' } as const;
  const run = { to: 'server', effect: 'retry', approval: false } as const;
  const tool: AgentTool = { name: 'look', description: '', parameters: {}, info, run };
  const tools = new Map([['look', cannot ? tool : { ...tool, beginsAhead: true as const }]]);
  const spec = { model: { name: 'm' }, ...(callsInSequence === true && { callsInSequence }) };
  return { toolset: { tools, servers: [], unavailable: [] }, spec };
}

function seen(text: string): { isError: boolean; content: object[] } {
  return { isError: false, content: [{ type: 'text', text }] };
}

const source = (index = 0) => ({ turnId: 'turn_1', messageId: 'msg_1', stamp: STAMP, index });

let bus: InProcessBus;
let metrics: Metrics;
let draining: AbortController;
/** The signals of the tool calls and model calls that have begun. */
let tools: AbortSignal[];
let models: AbortSignal[];
/** The requests of these model calls. */
let requests: object[];
/** The log of the turn in the memory of this worker. */
let known: UnsequencedRecord[] | undefined;
/** The servers of the agent that cannot be used. */
let unavailable: object[];
let steps: StepsAhead;
/** The action of a tool call instead of returning its operation id. */
let answer: (() => Promise<object>) | undefined;

beforeEach(() => {
  // A tool that returns at once does so on a slow machine as well.
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  [bus, metrics, draining, tools, models, known] = [
    new InProcessBus(),
    new Metrics(),
    new AbortController(),
    [],
    [],
    [],
  ];
  answer = undefined;
  unavailable = [];
  requests = [];
  async function* stream(request: object, signal: AbortSignal): AsyncGenerator<ModelChunk> {
    models.push(signal);
    requests.push(request);
    yield { content: 'next' };
    if (models.length > 1) await new Promise((resolve) => void signal.addEventListener('abort', resolve));
  }
  const sources = {
    bus,
    metrics,
    draining: draining.signal,
    config: { tool: { timeoutSeconds: 60 } },
    conversations: { ahead: () => known && Promise.resolve(known) },
    catalog: { agents: { spec: () => Promise.resolve({ model: { name: 'm' } }) } },
    toolsets: { load: () => Promise.resolve({ tools: new Map(), servers: [], unavailable }) },
    modelCallParts: [COMPACTION_PART],
    models: { resolve: () => ({ model: 'm', provider: { stream } }) },
    toolKinds: {
      mcp: {
        run: (_call: unknown, { signal, operationId }: { signal: AbortSignal; operationId: string }) => {
          tools.push(signal);
          return answer?.() ?? Promise.resolve({ status: 'result', ...seen(operationId) });
        },
      },
    },
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what the calls of these tests need
  steps = new StepsAhead(sources as unknown as ConstructorParameters<typeof StepsAhead>[0]);
});
afterEach(() => void vi.useRealTimers());

/** Settles when what could begin has begun. */
async function begun(): Promise<void> {
  await new Promise((resolve) => void setImmediate(resolve));
}

/** Ends a message of a turn that is not held, as its first attempt. */
function end(more: Partial<ModelCall>, stamp: string, records: NewRecord[], answered = prepared()): void {
  const its = { ...input, ...more };
  steps.modelCalled(its.turnId, 'msg_1');
  steps.messageEnded(its, stamp, records, answered);
}

/** Ends a message with these calls and, under `results`, each call. Returns whether the next model call has begun. */
async function run(routes: ToolRoute[], results: string[], more: Partial<ModelCall> = {}): Promise<boolean> {
  const before = models.length;
  end(more, STAMP, [messageWith(...routes)]);
  for (const [i, stamp] of results.entries()) steps.toolEnded(source(i), stamp, resultOf(`call_${i}`));
  await begun();
  return models.length > before;
}

/** The model call that the workflow schedules after `run`. */
const next = (results: string[], more: Partial<ModelCall> = {}): ModelCall => ({
  ...input,
  step: 2,
  messageId: 'msg_2',
  upTo: 2 + results.length,
  recent: [STAMP, ...results],
  ...more,
});

async function textOf(claimed: ClaimedModelCall | undefined): Promise<string | undefined> {
  if (!claimed) return undefined;
  let text = '';
  for await (const { content } of claimed.chunks) text += content ?? '';
  return text;
}

async function countOf(work: string, outcome: string): Promise<number> {
  const { values } = await metrics.speculativeSteps.get();
  return values.find(({ labels }) => labels.work === work && labels.outcome === outcome)?.value ?? 0;
}

test('a read-only tool runs when its message ends, and its activity gets the outcome', async () => {
  end({}, STAMP, [messageWith(server)]);
  await begun();
  expect(tools.length).toBe(1);
  const outcome = await steps.claimTool(source(), never);
  expect(outcome).toMatchObject({ status: 'result', content: [{ text: `turn_1/call_0/${STAMP}` }] });
  expect(steps.claimTool(source(), never)).toBeUndefined();
  expect(await countOf('tool_call', 'claimed')).toBe(1);
});

test('the outcome of a call is for the message of that stamp alone', async () => {
  await run([server], []);
  expect(steps.claimTool({ ...source(), stamp: 'of another attempt' }, never)).toBeUndefined();
  expect(steps.claimTool(source(1), never)).toBeUndefined();
});

test.each<[string, ToolRoute, 'cannot'?]>([
  ['that changes something, or whose server is not believed', server, 'cannot'],
  ['that needs an approval', { ...server, approval: true }],
  ['of the client', { to: 'client' }],
  ['that cannot run', { to: 'answered' }],
])('a tool %s does not run before it is scheduled', async (_what, route, cannot) => {
  end({}, STAMP, [messageWith(route)], prepared(cannot));
  await begun();
  expect(tools).toEqual([]);
});

test.each<[string, ModelCall['left']]>([
  ['model calls', { steps: 1 }],
  ['tokens', { steps: 9, tokens: 0 }],
  ['time', { untilMs: 0 }],
])('nothing begins after a message that uses up the %s of a budget', async (_what, left) => {
  expect(await run([server], ['r'], left && { left })).toBe(false);
  expect([tools, models]).toEqual([[], []]);
  expect(await run([server], ['r'], { left: { steps: 2, tokens: 99, untilMs: Infinity } })).toBe(true);
});

test('the next model call begins with the last result, and its activity reads the answer', async () => {
  end({}, STAMP, [messageWith(server, server, { to: 'answered' })]);
  steps.toolEnded(source(0), 'r0', resultOf('call_0'));
  await begun();
  expect(models.length).toBe(0);
  steps.toolEnded(source(1), 'r1', resultOf('call_1'));
  await begun();
  expect(models.length).toBe(1);
  // The history may have the results in another order.
  const asked = next(['r1', 'r0']);
  expect(await textOf(await steps.claimModelCall(asked, never))).toBe('next');
  expect(await steps.claimModelCall({ ...input, step: 2 }, never)).toBeUndefined();
  expect(await countOf('model_call', 'claimed')).toBe(1);
});

test.each<[string, Partial<ModelCall>]>([
  ['a record came in between', { upTo: 4 }],
  ['another attempt at a tool was accepted', { recent: [STAMP, 'of another attempt'] }],
  ['another attempt at the message was accepted', { recent: ['of another attempt', 'r'] }],
  ['a result was lost', { recent: [STAMP, ''] }],
  ['there are more results', { recent: [STAMP, 'r', 'more'] }],
  ['an answer is forced', { isForced: true }],
])('a call is ended if %s', async (_what, more) => {
  await run([server], ['r']);
  expect(await steps.claimModelCall(next(['r'], more), never)).toBeUndefined();
  expect(models.map(({ aborted }) => aborted)).toEqual([true]);
  expect(await countOf('model_call', 'mismatched')).toBe(1);
});

test.each([0, Date.now()])(
  'a call that a limit forces begins as a forced one, and no other claims it (%d)',
  async (at) => {
    for (const [asked, text] of [
      [{ isForced: true }, 'next'],
      [{}, undefined],
    ] as const) {
      expect(await run([server], ['r'], { forcedFromMs: at })).toBe(true);
      expect(await textOf(await steps.claimModelCall(next(['r'], asked), never))).toBe(text);
    }
    expect(requests).toMatchObject([{ toolChoice: 'none' }, { toolChoice: 'none' }]);
  },
);

test('a call that begins before the time of its limit is not a forced one', async () => {
  await run([server], ['r'], { forcedFromMs: Date.now() + 60_000 });
  expect(await textOf(await steps.claimModelCall(next(['r']), never))).toBe('next');
  expect(requests[0]).not.toHaveProperty('toolChoice');
});

test.each<Partial<ModelCall>>([{ threadId: 'helper' }, { turnId: 'turn_2' }])(
  'a call is not claimed by another thread or turn (%j)',
  async (more) => {
    await run([server], ['r']);
    expect(await steps.claimModelCall(next(['r'], more), never)).toBeUndefined();
    expect(models.map(({ aborted }) => aborted)).toEqual([false]);
  },
);

test.each<[string, ToolRoute[], Partial<ModelCall>]>([
  ['a call waits for an approval', [server, { ...server, approval: true }], {}],
  ['a call waits for the client', [server, { to: 'client' }], {}],
  ['the iteration limit is reached', [server], { isLast: true }],
])('no model call begins if %s', async (_what, routes, more) => {
  expect(await run(routes, ['r0', 'r1'], more)).toBe(false);
  expect(models).toEqual([]);
});

test('no model call begins after a search for tools: the order of several is that of the history', async () => {
  end({}, STAMP, [messageWith(server)]);
  steps.toolEnded(source(), 'r', { ...resultOf('call_0'), foundTools: [] });
  await begun();
  expect(models).toEqual([]);
});

test('no model call begins after a call that waits for the user', async () => {
  end({}, STAMP, [messageWith(server, server)]);
  steps.toolWaits(source(0));
  steps.toolEnded(source(1), 'r1', resultOf('call_1'));
  await begun();
  expect(models).toEqual([]);
});

test('a call that may need a sign-in is left to its activity: the model is not asked', async () => {
  unavailable = [{ server: 's', reason: 'requires the user to sign in', signIn: {} }];
  await run([server], ['r']);
  expect(await steps.claimModelCall(next(['r']), never)).toBeUndefined();
  expect(models).toEqual([]);
});

test('a conversation that has to be compacted first is left to its activity', async () => {
  const turn = turnCreated({ ...turnStart(), input: [{ type: 'user.message', content: 'x'.repeat(400_000) }] });
  known = [turn, { ...turn, turnId: 'turn_2', input: [{ type: 'user.message', content: 'now' }] }];
  await run([server], ['r']);
  expect(await steps.claimModelCall(next(['r']), never)).toBeUndefined();
  expect(models).toEqual([]);
});

test('a worker that lacks a part of the conversation asks nothing', async () => {
  known = undefined;
  expect(await run([server], ['r'])).toBe(false);
  expect(models).toEqual([]);
});

test.each([
  ['the turn is cancelled', () => bus.hint('cancel:turn_1')],
  ['the worker drains', () => draining.abort()],
])('speculative work ends when %s', async (_what, stop) => {
  await run([server], ['r']);
  stop();
  expect([...tools, ...models].map(({ aborted }) => aborted)).toEqual([true, true]);
  expect(steps.claimTool(source(), never)).toBeUndefined();
  expect(await steps.claimModelCall(next(['r']), never)).toBeUndefined();
});

test('a model call that was begun ends when a command changes what comes next, and the tools keep their results', async () => {
  await run([server], ['r']);
  bus.hint('command:turn_1');
  expect([...tools, ...models].map(({ aborted }) => aborted)).toEqual([false, true]);
  expect(await steps.claimModelCall(next(['r']), never)).toBeUndefined();
});

test('no model call begins after a command that arrives while a tool runs', async () => {
  end({}, STAMP, [messageWith(server)]);
  bus.hint('command:turn_1');
  steps.toolEnded(source(), 'r', resultOf('call_0'));
  await begun();
  expect(models).toEqual([]);
});

/** Ends a message whose workflow is elsewhere, or has got a command since it asked for the message. */
async function endHeld(): Promise<void> {
  steps.messageEnded(input, STAMP, [messageWith(server)], prepared());
  steps.toolEnded(source(), 'r', resultOf('call_0'));
  await begun();
}

test('a message that no workflow of this process has asked for begins nothing: its turn may be paused', async () => {
  await endHeld();
  expect([tools, models]).toEqual([[], []]);
});

test.each([
  ['the workflow is paused', () => bus.hint('command:turn_1')],
  ['an attempt at it fails', () => steps.modelReturned(input)],
])('a message begins nothing if %s meanwhile; the next one does', async (_what, happens) => {
  steps.modelCalled('turn_1', 'msg_1');
  happens();
  await endHeld();
  expect([tools, models]).toEqual([[], []]);
  bus.hint('command:turn_2');
  expect(await run([server], ['r'])).toBe(true);
});

test('a worker has at most 500 calls of tools that are not claimed', async () => {
  for (let i = 0; i < 11; i++) {
    end({}, `stamp ${i}`, [messageWith(...Array.from({ length: 60 }, () => server))]);
  }
  await begun();
  expect(tools.length).toBe(500);
});

test('a worker that drains begins nothing', async () => {
  draining.abort();
  expect(await run([server], ['r'])).toBe(false);
  expect([tools, models]).toEqual([[], []]);
});

const ofBob = { turnId: 'turn_2', owner: { subjectId: 'bob', draftRoles: null } };

test('work not claimed in time stops its subject for a while, and no other: the activities run elsewhere', async () => {
  await run([server], ['r']);
  vi.advanceTimersByTime(10_000);
  expect(await run([server], ['r'])).toBe(false);
  expect(await run([server], ['r'], ofBob)).toBe(true);
  vi.advanceTimersByTime(60_000);
  expect(await run([server], ['r'])).toBe(true);
});

test('a model call that is not claimed ends after 10 seconds, and the outcome of a tool is used for 60', async () => {
  const expired = () => Promise.all([countOf('tool_call', 'expired'), countOf('model_call', 'expired')]);
  await run([server, server], ['r0', 'r1']);
  vi.advanceTimersByTime(10_000);
  expect([...tools, ...models].map(({ aborted }) => aborted)).toEqual([false, false, true]);
  expect(await expired()).toEqual([0, 1]);
  vi.advanceTimersByTime(49_999);
  expect(await steps.claimTool(source(0), never)).toMatchObject({ status: 'result' });
  vi.advanceTimersByTime(1);
  expect(steps.claimTool(source(1), never)).toBeUndefined();
  expect(tools.map(({ aborted }) => aborted)).toEqual([false, true]);
  expect(await expired()).toEqual([1, 1]);
});

test('a turn that is resumed within a minute claims its tools, and one that is resumed later has them run again', async () => {
  await run([server, server], []);
  bus.hint('command:turn_1');
  vi.advanceTimersByTime(59_999);
  expect(await steps.claimTool(source(0), never)).toMatchObject({ status: 'result' });
  vi.advanceTimersByTime(1);
  expect(steps.claimTool(source(1), never)).toBeUndefined();
  await run([server], []);
  expect(tools.map(({ aborted }) => aborted)).toEqual([false, true, false]);
});

test('a model call that runs on another worker is forgotten', () => {
  let listening = 0;
  const onHint = bus.onHint.bind(bus);
  vi.spyOn(bus, 'onHint').mockImplementation((topic, listener) => {
    const stopListening = onHint(topic, listener);
    listening += 1;
    return () => {
      listening -= 1;
      stopListening();
    };
  });
  steps.modelCalled('turn_1', 'msg_1');
  expect(listening).toBe(1);
  vi.advanceTimersByTime(600_000);
  expect(listening).toBe(0);
});

const parent = { threadId: 'main', toolCallId: 'call_9' };
const thread = { threadId: 'thread_1', title: '', parent, depth: 1 };
const subAgent = { ...thread, specHash: 'a1', hasServers: false, iterations: 9 };

test.each<[string, number, Partial<ModelCall>, boolean]>([
  ['the root agent', 50, {}, false],
  ['a root agent whose calls run one after the other', 1, {}, true],
  ['a sub-agent', 10, { subAgent }, false],
  ['a sub-agent of such a root agent', 10, { subAgent }, true],
])('as many calls of %s begin as its workflow schedules at once: %d', async (_whose, count, more, inSequence) => {
  const routes = Array.from({ length: 60 }, () => server);
  end(more, STAMP, [messageWith(...routes)], prepared(undefined, inSequence));
  await begun();
  expect(tools.length).toBe(count);
});

test('the activity that has claimed a call ends it, and its signal keeps no listener afterwards', async () => {
  await run([server], ['r']);
  await run([server], ['r']);
  const activity = new AbortController();
  const claimed = await steps.claimModelCall(next(['r']), activity.signal);
  const text = textOf(claimed);
  expect(getEventListeners(activity.signal, 'abort').length).toBe(1);
  activity.abort();
  expect(await text).toBe('next');
  expect(models.at(-1)?.aborted).toBe(true);
  const other = new AbortController();
  await steps.claimTool(source(), other.signal);
  expect(getEventListeners(other.signal, 'abort').length).toBe(0);
});

test('no model call begins before the client has refreshed its toolkits', async () => {
  const required: NewRecord = { kind: 'toolkit.refresh_required', at: AT, messageId: 'msg_1', toolkits: ['a'] };
  end({}, STAMP, [messageWith(server), required]);
  steps.toolEnded(source(), 'result', resultOf('call_0'));
  await begun();
  expect([tools.length, models.length]).toEqual([1, 0]);
});

/** A message in which the tool returns at once. */
async function runQuickly(): Promise<void> {
  const outcome = answer;
  answer = undefined;
  end({}, 'earlier', [messageWith(server)]);
  await steps.claimTool({ ...source(), stamp: 'earlier' }, never);
  [tools, answer] = [[], outcome];
}

/** The results that the message brings along, whose calls have begun. */
async function early(...routes: ToolRoute[]): Promise<EarlyResult[] | undefined> {
  await runQuickly();
  const message = messageWith(...routes);
  end({}, STAMP, [message]);
  return steps.earlyResults(input, { stamp: STAMP, message }, never);
}

const answered = { to: 'answered' } as const;

test('results that are available at once belong to their message, and the next model call begins with it', async () => {
  expect(await early(server, answered, server)).toEqual([
    { index: 0, result: { outcome: 'succeeded', text: `turn_1/call_0/${STAMP}`, files: [] } },
    { index: 2, result: { outcome: 'succeeded', text: `turn_1/call_2/${STAMP}`, files: [] } },
  ]);
  expect([steps.claimTool(source(0), never), steps.claimTool(source(2), never)]).toEqual([undefined, undefined]);
  expect(models).toEqual([]);
  steps.resultsEnded(STAMP);
  await begun();
  const asked = { ...next([]), upTo: 4 };
  expect(await textOf(await steps.claimModelCall(asked, never))).toBe('next');
});

test('a failure of the tool is a result like any other', async () => {
  answer = () => Promise.resolve({ status: 'result', ...seen('no'), isError: true });
  expect(await early(server)).toMatchObject([{ index: 0, result: { outcome: 'failed', text: 'no' } }]);
});

const image = { type: 'image', mimeType: 'image/png', data: '' };

test.each<[string, () => Promise<object>]>([
  ['comes late', () => new Promise(() => undefined)],
  ['has a file', () => Promise.resolve({ status: 'result', isError: false, content: [image] })],
  ['is long', () => Promise.resolve({ status: 'result', ...seen('x'.repeat(8193)) })],
  [
    'has long structured content',
    () => Promise.resolve({ status: 'result', ...seen(''), structuredContent: 'x'.repeat(8193) }),
  ],
  ['offers tools', () => Promise.resolve({ status: 'result', ...seen(''), foundTools: [] })],
  ['is none: the server has rejected the call', () => Promise.resolve({ status: 'rejected', message: 'no' })],
  ['is none: the server asks the user', () => Promise.resolve({ status: 'asks' })],
  ['is none: the call could not be sent', () => Promise.reject(new Error('no such server'))],
])('a result is left to the activity of its call if it %s', async (_what, outcome) => {
  answer = outcome;
  const results = early(server);
  await begun();
  vi.advanceTimersByTime(EARLY_MS);
  expect(await results).toBeUndefined();
  const claimed = steps.claimTool(source(), never);
  expect(claimed).toBeDefined();
  claimed?.catch(() => undefined);
});

test('results that are long together are left to the activities of their calls', async () => {
  answer = () => Promise.resolve({ status: 'result', ...seen('x'.repeat(5000)) });
  expect(await early(server, server)).toBeUndefined();
});

test.each<[string, ToolRoute[]]>([
  ['a call needs an approval', [server, { ...server, approval: true }]],
  ['the client runs a call', [server, { to: 'client' }]],
  ['nothing has run', [answered]],
])('no result belongs to its message if %s', async (_what, routes) => {
  expect(await early(...routes)).toBeUndefined();
});

test.each([
  ['is held', () => bus.hint('command:turn_1')],
  ['is cancelled', () => bus.hint('cancel:turn_1')],
  ['loses its worker', () => draining.abort()],
])('no result belongs to its message if the turn %s meanwhile', async (_what, stop) => {
  const running = Promise.withResolvers<object>();
  answer = () => running.promise;
  const results = early(server);
  await begun();
  expect(tools.length).toBe(1);
  stop();
  running.resolve({ status: 'result', ...seen('in vain') });
  expect(await results).toBeUndefined();
});

test('no model call begins with early results after a command', async () => {
  expect(await early(server)).toHaveLength(1);
  bus.hint('command:turn_1');
  steps.resultsEnded(STAMP);
  await begun();
  expect(models).toEqual([]);
});

test('a message waits for tools only if they have returned as soon before', async () => {
  const message = messageWith(server);
  const results = (stamp: string) => {
    end({}, stamp, [message]);
    return steps.earlyResults(input, { stamp, message }, never);
  };
  expect(await results('first')).toBeUndefined();
  await begun();
  expect(await results('second')).toHaveLength(1);
  const late = Promise.withResolvers<object>();
  answer = () => late.promise;
  const third = results('third');
  await begun();
  vi.advanceTimersByTime(EARLY_MS);
  expect(await third).toBeUndefined();
  late.resolve({ status: 'result', ...seen('late') });
  await steps.claimTool({ ...source(), stamp: 'third' }, never);
  answer = undefined;
  expect(await results('fourth')).toBeUndefined();
  await begun();
  expect(await results('fifth')).toHaveLength(1);
});

test('no result belongs to the message of a sub-agent: another thread may have used up the budget of the turn', async () => {
  await runQuickly();
  const message = messageWith(server);
  end({ subAgent }, STAMP, [message]);
  expect(await steps.earlyResults({ subAgent }, { stamp: STAMP, message }, never)).toBeUndefined();
});

test('no tool runs ahead behind a call of the same server that comes before it', async () => {
  const write = { ...server, effect: 'once', order: { server: 's' } } as const;
  const read = { ...server, order: { server: 's', isReadOnly: true } } as const;
  end({}, STAMP, [messageWith(read, write, read, server)]);
  await begun();
  const claimed = [0, 1, 2, 3].map((index) => steps.claimTool(source(index), never) !== undefined);
  // This toolset declares the write read-only.
  expect(claimed).toEqual([true, false, false, true]);
});
