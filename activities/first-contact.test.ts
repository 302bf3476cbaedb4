import { ApplicationFailure, ApplicationFailureCategory } from '@temporalio/common';
import { MockActivityEnvironment } from '@temporalio/testing';
import { expect, test } from 'vitest';
import { activityDependencies } from '../test/support/activity-dependencies.ts';
import { MODEL_CALL, modelDependencies } from '../test/support/activity-inputs.ts';
import type { CallModelInput, CallModelResult } from '../src/core/history.ts';
import { ModelError } from '../src/models/model-error.ts';
import { createCallModel } from './call-model.ts';

const refused = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED', address: '::1', port: 1 });
const UNREACHABLE = new ModelError('connection', 'the model cannot be reached', { cause: refused });

/** Retries a call of a model that fails like this until its message ends, and adds up the waits, which are not waited. */
async function retried(failure: ModelError, { hasResponded }: { hasResponded: boolean }) {
  // oxlint-disable-next-line require-yield -- it fails before
  const stream = async function* () {
    throw await Promise.resolve(failure);
  };
  const lines: object[] = [];
  const target = { providerName: 'own', baseUrl: 'http://localhost:1/v1', model: 'm', provider: { stream } };
  const callModel = createCallModel(
    activityDependencies({
      ...modelDependencies(stream),
      models: { learnContext: () => Promise.resolve(), resolve: () => target },
      config: { model: { retrySeconds: 300 }, tool: { timeoutSeconds: 60 } },
      serverContacts: { hasResponded: () => Promise.resolve(hasResponded) },
      log: { warn: (fields: object, message: string) => void lines.push({ ...fields, message }) },
    }),
  );
  let waitedMs = 0;
  const categories = new Set<unknown>();
  let heartbeatDetails: unknown;
  for (let attempt = 1; ; attempt++) {
    const env = new MockActivityEnvironment({ attempt, heartbeatDetails });
    env.on('heartbeat', (details) => (heartbeatDetails = details));
    try {
      const { outcome } = await env.run<[CallModelInput], CallModelResult, typeof callModel>(callModel, MODEL_CALL);
      return { outcome, waitedMs, lines, attempts: attempt, categories };
    } catch (error) {
      if (!(error instanceof ApplicationFailure) || typeof error.nextRetryDelay !== 'number') throw error;
      waitedMs += error.nextRetryDelay;
      categories.add(error.category);
    }
  }
}

test('a server that has never answered and refuses connections ends the turn after 10 seconds, with what to check', async () => {
  const { outcome, waitedMs } = await retried(UNREACHABLE, { hasResponded: false });
  expect(outcome).toMatchObject({
    status: 'error',
    code: 'model_failed',
    message: expect.stringMatching(
      /^own\/m: the model cannot be reached\. The provider own has never answered at localhost:1: check that the server is running/,
    ),
  });
  expect(waitedMs).toBeGreaterThan(2_000);
  expect(waitedMs).toBeLessThanOrEqual(10_000);
});

test.each<[string, ModelError, { hasResponded: boolean }]>([
  ['that has answered before', UNREACHABLE, { hasResponded: true }],
  ['that is slow', new ModelError('timeout', 'it took too long'), { hasResponded: false }],
  ['that is overloaded', new ModelError('overloaded', 'busy', { status: 503 }), { hasResponded: false }],
  ['with a limit', new ModelError('rate_limited', 'slow down', { status: 429 }), { hasResponded: false }],
])('a server %s is retried as long as configured, and there is no advice', async (_, failure, contact) => {
  const { outcome, waitedMs } = await retried(failure, contact);
  expect(outcome).toMatchObject({ status: 'error', message: expect.not.stringContaining('never answered') });
  expect(waitedMs).toBeGreaterThan(200_000);
});

test('each attempt that fails has one line, with provider, model, address and reason; the line of the SDK is for debugging', async () => {
  const { lines, attempts, categories } = await retried(UNREACHABLE, { hasResponded: false });
  const called = { provider: 'own', model: 'm', address: '::1:1', failure: 'connection', code: 'ECONNREFUSED' };
  expect(lines).toEqual([
    ...Array.from({ length: attempts - 1 }, () =>
      expect.objectContaining({ ...called, waitMs: expect.any(Number), message: expect.stringMatching(/is repeated/) }),
    ),
    expect.objectContaining({ ...called, waitMs: undefined, message: 'a model call failed' }),
  ]);
  expect(categories).toEqual(new Set([ApplicationFailureCategory.BENIGN]));
  const answered = await retried(new ModelError('overloaded', 'busy', { status: 503 }), { hasResponded: true });
  expect(answered.lines[0]).toMatchObject({ address: 'localhost:1', failure: 'overloaded', status: 503 });
});
