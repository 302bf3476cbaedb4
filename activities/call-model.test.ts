import { MockActivityEnvironment } from '@temporalio/testing';
import { expect, test, vi } from 'vitest';
import { activityDependencies } from '../test/support/activity-dependencies.ts';
import { MODEL_CALL, modelDependencies } from '../test/support/activity-inputs.ts';
import { turnStart } from '../test/support/random-turn.ts';
import type { CallModelInput, CallModelResult } from '../src/core/history.ts';
import { turnCreated } from '../src/core/projection.ts';
import { ModelError } from '../src/models/model-error.ts';
import type { ModelChunk } from '../src/models/provider.ts';
import type { DecisionPolicy } from '../src/spec/agent-spec.ts';
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
      conversations: {
        load: () => Promise.resolve([turnCreated(turnStart())]),
        remember: () => undefined,
        newestAuthor,
      },
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
])('those who have asked for a call are the owner and the author of the newest message: %s', async (_, author, ids) => {
  const route = await routeBy({ exclude_requester: true }, () => Promise.resolve(author));
  expect(route).toMatchObject({ to: 'server', policy: { excludeRequester: true }, requesters: ids });
});

test('who has asked for a call is read again while Temporal or the catalog is unavailable', async () => {
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
      conversations: { load: () => Promise.resolve([turnCreated(turnStart())]), remember: () => undefined },
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
