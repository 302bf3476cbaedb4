import { expect, test } from 'vitest';
import { modelMessage } from '../../../test/support/model-message.ts';
import { emptyResponse, type MessagePlan } from './message.ts';
import { UNREPORTED } from './usage.ts';

const { id: messageId, at: createdAt, threadId } = modelMessage();
const plan: MessagePlan = { threadId, messageId, createdAt, upTo: 1 };

test('an empty response has the usage of its attempts, and none if no attempt was made', () => {
  const empty = modelMessage({ finishReason: 'error' });
  expect(emptyResponse(plan, 'error', UNREPORTED)).toEqual([{ ...empty, usage: UNREPORTED }]);
  expect(emptyResponse(plan, 'error', undefined)).toEqual([empty]);
});
