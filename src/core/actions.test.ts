import { expect, test } from 'vitest';
import { actionKind } from './actions.ts';

test('a call whose outcome is unknown has an action kind of its own, whatever it needs', () => {
  const source = { turnId: 'turn_1', messageId: 'msg_1', stamp: 's', index: 0 };
  const call = { threadId: 'main', toolCallId: 'c1', source };
  expect(actionKind({ ...call, needs: 'approval' })).toBe('approval');
  expect(actionKind({ ...call, needs: 'response' })).toBe('response');
  expect(actionKind({ ...call, needs: 'approval', unknownOutcome: '' })).toBe('unknown_outcome');
});
