import { expect, test } from 'vitest';
import { modelMessage } from '../../../test/support/model-message.ts';
import { endStatus, hasOutput } from './turn.ts';

const done = { status: 'done' as const, output: null, requiredActions: [] };

test('a turn that is done while calls are pending on it requires an action', () => {
  const { id, at, threadId } = modelMessage();
  const asking = { kind: 'tool.response_required' as const, id, at, threadId, calls: [] };
  expect(endStatus(done)).toBe('done');
  expect(endStatus({ ...done, requiredActions: [asking] })).toBe('action_required');
  expect(endStatus({ status: 'cancelled', reason: 'abandoned' })).toBe('cancelled');
});

test('an output is one with text, which may be a refusal', () => {
  const outputs = [null, modelMessage(), modelMessage({ content: 'yes' }), modelMessage({ refusal: 'no' })];
  expect(outputs.map((output) => hasOutput({ ...done, output }))).toEqual([false, false, true, true]);
});
