import { MockActivityEnvironment } from '@temporalio/testing';
import { expect, test, vi } from 'vitest';
import { activityDependencies } from '../test/support/activity-dependencies.ts';
import {
  conversationsWithCall,
  MODEL_CALL,
  modelDependencies,
  toolCallInput,
} from '../test/support/activity-inputs.ts';
import type { ModelChunk } from '../src/models/provider.ts';
import { createCallModel } from './call-model.ts';
import { createCallTool } from './call-tool.ts';

/** A store that fails by an error of its own: it is not unavailable for a moment. */
const put = () => Promise.reject(new TypeError('not a function'));

/** Too large for the history. */
const text = 'x'.repeat(200_000);

/** Temporal retries an activity that may be repeated, unless it fails like this. */
const notStored = { nonRetryable: true, message: 'the result could not be stored: not a function' };

test('a result that cannot be stored fails its call: the tool is not called again', async () => {
  const run = vi.fn(() => Promise.resolve({ status: 'result', content: [{ type: 'text', text }], isError: false }));
  const callTool = createCallTool(
    activityDependencies({ blobs: { put }, conversations: conversationsWithCall('look'), toolKinds: { mcp: { run } } }),
  );
  const input = toolCallInput('retry');
  await expect(new MockActivityEnvironment().run(() => callTool(input))).rejects.toMatchObject(notStored);
  expect(run).toHaveBeenCalledTimes(1);
});

test('a message that cannot be stored fails its call: the model is not called, and paid, again', async () => {
  const stream = vi.fn(async function* (): AsyncGenerator<ModelChunk> {
    yield await Promise.resolve({ content: text, finishReason: 'stop' });
  });
  const callModel = createCallModel(activityDependencies({ ...modelDependencies(stream), blobs: { put } }));
  const input = { ...MODEL_CALL, step: 1 };
  await expect(new MockActivityEnvironment().run(() => callModel(input))).rejects.toMatchObject(notStored);
  expect(stream).toHaveBeenCalledTimes(1);
});
