import { MockActivityEnvironment } from '@temporalio/testing';
import { expect, test, vi } from 'vitest';
import { activityDependencies } from '../test/support/activity-dependencies.ts';
import { CONVERSATION, MODEL_CALL, modelDependencies } from '../test/support/activity-inputs.ts';
import { begunCall } from '../test/support/begun-call.ts';
import { turnStart } from '../test/support/random-turn.ts';
import type { CallModelInput, CallModelResult } from '../src/core/history.ts';
import { SharedBudgets } from '../src/features/budgets/shared-budgets.ts';
import type { SpeculativeCall } from '../src/engine/speculation.ts';
import { NEVER_ABORTED } from '../src/lib/abort.ts';
import { ModelError } from '../src/models/model-error.ts';
import type { ModelChunk, ModelProvider } from '../src/models/provider.ts';
import type { DecisionPolicy } from '../src/spec/agent-spec.ts';
import { SpeculativeCalls } from '../src/features/speculation/speculative-calls.ts';
import { createCallModel } from './call-model.ts';

const pay = {
  name: 'pay',
  description: '',
  parameters: { type: 'object' },
  info: { type: 'mcp', serverId: 'srv_1', serverName: 'bank', name: 'pay' },
  run: { to: 'server', effect: 'once', approval: true },
};

/** The route of a call in a session of ann, by a policy with these fields. The author is that of the newest message. */
async function routeBy(policy: Partial<DecisionPolicy>, newestAuthor: () => Promise<string | undefined>) {
  const decided = { match: {}, decision: 'ask', ...policy };
  const spec = { model: { name: 'm' }, config: { pause: 'wait', decision_policies: [decided] } };
  const chunks: ModelChunk[] = [
    { toolCalls: [{ index: 0, id: 'call_0', name: 'pay', arguments: '{}' }], finishReason: 'tool_calls' },
  ];
  const callModel = createCallModel(
    activityDependencies({
      catalog: { agents: { spec: () => Promise.resolve(spec) } },
      conversations: { ...CONVERSATION, newestAuthor },
      toolsets: { load: () => Promise.resolve({ tools: new Map([['pay', pay]]), servers: [], unavailable: [] }) },
      models: {
        learnContext: () => Promise.resolve(),
        resolve: () => ({
          model: 'm',
          provider: {
            async *stream() {
              yield* await Promise.resolve(chunks);
            },
          },
          cost: () => undefined,
        }),
      },
    }),
  );
  const { records } = await new MockActivityEnvironment().run<[CallModelInput], CallModelResult, typeof callModel>(
    callModel,
    MODEL_CALL,
  );
  const message = records.find((record) => record.kind === 'model.message');
  return message?.toolCalls[0]?.route;
}

test.each<[string, string | undefined, string[]]>([
  ['the owner alone, if it has sent it', 'ann', ['ann']],
  ['the owner and another author', 'bob', ['ann', 'bob']],
  ['the owner, if there is no message', undefined, ['ann']],
])('the requesters of a call are the owner and the author of the newest message: %s', async (_, author, ids) => {
  const route = await routeBy({ exclude_requester: true }, () => Promise.resolve(author));
  expect(route).toMatchObject({ to: 'server', policy: { excludeRequester: true }, requesters: ids });
});

test('the requesters of a call are read again while Temporal or the catalog is unavailable', async () => {
  let reads = 0;
  const unavailable = Object.assign(new Error('disk'), { code: 'EIO' });
  const route = await routeBy({ exclude_requester: true }, () =>
    reads++ === 0 ? Promise.reject(unavailable) : Promise.resolve('bob'),
  );
  expect([reads, route]).toMatchObject([2, { requesters: ['ann', 'bob'] }]);
});

test('a call whose policy excludes no requester names none, and reads none', async () => {
  const route = await routeBy({}, () => Promise.reject(new Error('it was read')));
  expect(route).toMatchObject({ to: 'server', approval: true });
  expect(route).not.toHaveProperty('requesters');
});

/** A call of the first model of an agent, whose provider asks for a wait that is longer than failures are retried. */
async function callLimited(fallbacks: string[]): Promise<unknown> {
  const error = new ModelError('rate_limited', 'come back tomorrow', { status: 429, retryAfterMs: 86_400_000 });
  const callModel = createCallModel(
    activityDependencies({
      catalog: { agents: { spec: () => Promise.resolve({ model: { name: 'm', fallbacks } }) } },
      conversations: CONVERSATION,
      toolsets: { load: () => Promise.resolve({ tools: new Map(), servers: [], unavailable: [] }) },
      log: { warn: () => undefined },
      models: {
        learnContext: () => undefined,
        resolve: () => ({
          providerName: 'p',
          model: 'm',
          provider: {
            async *stream() {
              yield await Promise.reject(error);
            },
          },
          cost: () => undefined,
        }),
      },
    }),
  );
  const env = new MockActivityEnvironment();
  return env.run<[CallModelInput], CallModelResult, typeof callModel>(callModel, MODEL_CALL);
}

test('a wait that is too long is not waited for: the next model is called, without one the turn’s error names it', async () => {
  await expect(callLimited(['other'])).rejects.toMatchObject({ type: 'rate_limited', nextRetryDelay: 1 });
  expect(await callLimited([])).toMatchObject({
    outcome: {
      status: 'error',
      message:
        'p/m answered 429: come back tomorrow (it asks for a wait of 86400 s; EVERTURN_MODEL_RETRY_SECONDS allows 60 s for all waits)',
    },
  });
});

test('a model call asks for the window of its model, and does not wait for it', async () => {
  const learnContext = vi.fn(() => new Promise<void>(() => undefined));
  const stream = async function* (): AsyncGenerator<ModelChunk> {
    yield await Promise.resolve({ content: 'Hello.', finishReason: 'stop' });
  };
  const target = { model: 'm', provider: { stream }, cost: () => undefined };
  const dependencies = { ...modelDependencies(stream), models: { learnContext, resolve: () => target } };
  const callModel = createCallModel(activityDependencies(dependencies));
  const { outcome } = await new MockActivityEnvironment().run<[CallModelInput], CallModelResult, typeof callModel>(
    callModel,
    MODEL_CALL,
  );
  expect(outcome).toEqual({ status: 'answered' });
  expect(learnContext).toHaveBeenCalledWith(target);
});

const START: SpeculativeCall = { ...turnStart(), after: null };

/** Attempts of the first model call of a turn whose subject may make one call a day, and what its model was asked. */
function budgeted(speculativeCalls: SpeculativeCalls) {
  let [steps, asked] = [0, 0];
  const spending = {
    begin: (_accounts: unknown, _turn: unknown, { isRetry }: { isRetry: boolean }) => {
      if (steps > 0 && !isRetry) return Promise.resolve({ scope: 'subject', limit: { steps: 1 }, spent: { steps } });
      steps += 1;
      return Promise.resolve(undefined);
    },
    settle: () => Promise.resolve(),
    takeBack: () => Promise.resolve(),
  };
  const stream = async function* (): AsyncGenerator<ModelChunk> {
    asked += 1;
    yield await Promise.reject(new ModelError('broken_stream', 'cut off'));
  };
  const options = { config: { subjectBudget: { period: 'day', limit: { steps: 1 } } }, catalog: { spending } };
  const dependencies = {
    ...modelDependencies(stream),
    speculativeCalls,
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only its budgets are read and written
    budgets: new SharedBudgets(options as unknown as ConstructorParameters<typeof SharedBudgets>[0]),
    log: { warn: () => undefined },
    serverContacts: { hasResponded: () => Promise.resolve(true) },
  };
  const callModel = createCallModel(activityDependencies(dependencies));
  let heartbeatDetails: unknown;
  const run = (attempt: number, step = 1): Promise<CallModelResult> => {
    const env = new MockActivityEnvironment({ attempt, heartbeatDetails });
    env.on('heartbeat', (details) => (heartbeatDetails = details));
    return env.run<[CallModelInput], CallModelResult, typeof callModel>(callModel, { ...MODEL_CALL, step });
  };
  return { run, asked: () => asked, use: () => (steps += 1) };
}

/** The call that was begun ahead for the turn of `MODEL_CALL`, with this answer. */
function begunAhead(content: string): SpeculativeCalls {
  const speculativeCalls = new SpeculativeCalls();
  const answer = async function* (): AsyncGenerator<ModelChunk> {
    yield await Promise.resolve({ content, finishReason: 'stop' });
  };
  speculativeCalls.serve((call) => Promise.resolve(begunCall(call, answer())), NEVER_ABORTED);
  speculativeCalls.offer({ ...START, turnId: MODEL_CALL.turnId });
  return speculativeCalls;
}

test('a budget that others have reached applies after a call begun ahead, and is no attempt of its turn', async () => {
  const speculativeCalls = begunAhead('in vain');
  await new Promise((resolve) => void setImmediate(resolve));
  speculativeCalls.withdraw(MODEL_CALL.turnId);
  const { run, asked, use } = budgeted(speculativeCalls);
  use();
  expect((await run(1)).outcome).toEqual({ status: 'budget_reached' });
  expect(asked()).toBe(0);
});

test.each([
  { answer: 'an answer', more: {}, text: 'begun ahead' },
  // A call that was begun ahead may call tools.
  { answer: 'a forced answer', more: { isForced: true }, text: 'asked for by its activity' },
] as const)('$answer in the first step is $text', async ({ more, text }) => {
  const stream = async function* (): AsyncGenerator<ModelChunk> {
    yield await Promise.resolve({ content: 'asked for by its activity', finishReason: 'stop' });
  };
  const target = { model: 'm', provider: { stream }, cost: () => undefined };
  const dependencies = {
    ...modelDependencies(stream),
    models: { learnContext: () => Promise.resolve(), resolve: () => target },
    speculativeCalls: begunAhead('begun ahead'),
  };
  const callModel = createCallModel(activityDependencies(dependencies));
  const input = { ...MODEL_CALL, step: 1, ...more };
  const { records } = await new MockActivityEnvironment().run<[CallModelInput], CallModelResult, typeof callModel>(
    callModel,
    input,
  );
  expect(records.find(({ kind }) => kind === 'model.message')).toMatchObject({ content: text });
});

test('a budget that others have reached applies in a later step, for which no call was begun ahead', async () => {
  const { run, asked, use } = budgeted(new SpeculativeCalls());
  use();
  expect((await run(1, 2)).outcome).toEqual({ status: 'budget_reached' });
  expect(asked()).toBe(0);
});

test('a call that was within a budget is repeated although it was reached since', async () => {
  const { run, asked } = budgeted(new SpeculativeCalls());
  await expect(run(1)).rejects.toMatchObject({ type: 'broken_stream' });
  await expect(run(2)).rejects.toMatchObject({ type: 'broken_stream' });
  expect(asked()).toBe(2);
});

test('a model call whose turn cannot be read is not retried without end, and has asked no model', async () => {
  const stream = vi.fn<ModelProvider['stream']>();
  const conversations = { call: () => Promise.reject(new Error('turn_1 has no thread main')) };
  const callModel = createCallModel(activityDependencies({ ...modelDependencies(stream), conversations }));
  let heartbeatDetails: unknown;
  const run = (attempt: number) => {
    const env = new MockActivityEnvironment({ attempt, heartbeatDetails });
    env.on('heartbeat', (details) => (heartbeatDetails = details));
    return env.run<[CallModelInput], CallModelResult, typeof callModel>(callModel, MODEL_CALL);
  };
  const failures: unknown[] = [];
  while (failures.length < 20) failures.push(await run(failures.length + 1).catch((error: unknown) => error));
  const message = expect.stringContaining('turn_1 has no thread main') as string;
  expect(failures[0]).toMatchObject({ nonRetryable: false, message });
  expect(failures.at(-1)).toMatchObject({ nonRetryable: true, message });
  expect(stream).not.toHaveBeenCalled();
});

test('a further attempt at a message begins nothing ahead', async () => {
  const look = { ...pay, name: 'look', run: { to: 'server', effect: 'retry', approval: false }, beginsAhead: true };
  const stream = async function* (): AsyncGenerator<ModelChunk> {
    const call = { index: 0, id: 'call_0', name: 'look', arguments: '{}' };
    yield await Promise.resolve({ toolCalls: [call], finishReason: 'tool_calls' });
  };
  const run = vi.fn(() => Promise.resolve({ status: 'result', isError: false, content: [] }));
  const dependencies = activityDependencies({
    ...modelDependencies(stream),
    toolsets: { load: () => Promise.resolve({ tools: new Map([['look', look]]), servers: [], unavailable: [] }) },
    models: { learnContext: () => undefined, resolve: () => ({ model: 'm', provider: { stream }, cost: () => 0 }) },
    toolKinds: { mcp: { run } },
  });
  const callModel = createCallModel(dependencies);
  const calls = async (attempt: number): Promise<number> => {
    run.mockClear();
    dependencies.stepsAhead.modelCalled(MODEL_CALL.turnId, MODEL_CALL.messageId);
    const env = new MockActivityEnvironment({ attempt });
    await env.run<[CallModelInput], CallModelResult, typeof callModel>(callModel, MODEL_CALL);
    return run.mock.calls.length;
  };
  expect([await calls(1), await calls(2)]).toEqual([1, 0]);
});
