import { MockActivityEnvironment } from '@temporalio/testing';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { activityDependencies } from '../test/support/activity-dependencies.ts';
import { MODEL_CALL, modelDependencies } from '../test/support/activity-inputs.ts';
import type { CallModelInput, CallModelResult } from '../src/core/history.ts';
import { ModelError } from '../src/models/model-error.ts';
import type { ModelChunk } from '../src/models/provider.ts';
import { createCallModel } from './call-model.ts';

const HOUR_MS = 3_600_000;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['Date'] });
});
afterEach(() => {
  vi.useRealTimers();
});

const passes = (ms: number) => vi.setSystemTime(Date.now() + ms);

/** Attempts at a message, each with the answer of its model. Models are retried for 60 s. */
function attempts(...answers: (() => Generator<ModelChunk>)[]) {
  let attempt = 0;
  let heartbeatDetails: unknown;
  const stream = async function* (): AsyncGenerator<ModelChunk> {
    yield* answers[attempt - 1]?.() ?? [];
    yield await Promise.reject(new ModelError('broken_stream', 'cut off'));
  };
  const dependencies = { ...modelDependencies(stream), log: { warn: () => undefined } };
  const callModel = createCallModel(activityDependencies(dependencies));
  return (): Promise<CallModelResult> => {
    const env = new MockActivityEnvironment({ attempt: ++attempt, heartbeatDetails });
    env.on('heartbeat', (details) => (heartbeatDetails = details));
    return env.run<[CallModelInput], CallModelResult, typeof callModel>(callModel, MODEL_CALL);
  };
}

function* nothing(): Generator<ModelChunk> {
  yield* [];
}

function* answersForAnHour(): Generator<ModelChunk> {
  yield { content: 'I was ' };
  passes(HOUR_MS);
  yield { content: 'saying' };
}

function* stopsForAnHour(): Generator<ModelChunk> {
  yield { content: 'I was ' };
  passes(HOUR_MS);
}

test('time in which a model responds does not count as time in which it fails', async () => {
  const run = attempts(nothing, answersForAnHour, answersForAnHour);
  for (const nextRetryDelay of [500, 1_000, 2_000]) {
    await expect(run()).rejects.toMatchObject({ type: 'broken_stream', nextRetryDelay });
  }
});

test('time in which a model is silent counts as time in which it fails', async () => {
  const run = attempts(nothing, stopsForAnHour, nothing);
  for (const nextRetryDelay of [500, 1_000]) {
    await expect(run()).rejects.toMatchObject({ type: 'broken_stream', nextRetryDelay });
  }
  expect((await run()).outcome).toMatchObject({ status: 'error', message: expect.stringContaining('cut off') });
});
