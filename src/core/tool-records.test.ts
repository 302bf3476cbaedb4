import { expect, test } from 'vitest';
import type { PendingCall } from './records/pending.ts';
import { actionsRequired, denial, hasNoResult } from './tool-records.ts';

const AT = '2026-11-28T12:00:00.000Z';
const call: PendingCall = {
  threadId: 'main',
  toolCallId: 'c',
  needs: 'approval',
  source: { turnId: 'turn_1', messageId: 'm', stamp: 's', index: 0 },
};

test('a denied call was not executed; to deny that a call runs again leaves its outcome unknown', () => {
  expect(denial(call, 'no', AT)).toMatchObject({ outcome: 'denied', content: 'no' });
  const lost: PendingCall = { ...call, needs: 'response', unknownOutcome: 'The server was lost.' };
  expect(denial(lost, 'no', AT)).toMatchObject({ outcome: 'unknown_outcome', content: 'The server was lost.' });
});

test('a call has no result of its tool if its outcome is unknown, unless its client has given that', () => {
  expect(hasNoResult({ outcome: 'unknown_outcome' })).toBe(true);
  expect(hasNoResult({ outcome: 'unknown_outcome', isGiven: true })).toBe(false);
  expect(hasNoResult({ outcome: 'failed', noResult: 'client' })).toBe(true);
  expect(hasNoResult({ outcome: 'failed' })).toBe(false);
});

test('answers are asked for by thread, all approvals before the other ones', () => {
  const given = ['response', 'approval', 'sign_in', 'approval'] as const;
  const pending = given.map((needs, n): PendingCall => ({ ...call, needs, toolCallId: `c${n}` }));
  const other: PendingCall = { ...call, threadId: 'thread_1' };
  const asked = actionsRequired([...pending, other], AT);
  expect(asked.map(({ kind, threadId, calls }) => [kind, threadId, calls.map(({ toolCallId }) => toolCallId)])).toEqual(
    [
      ['tool.approval_required', 'main', ['c1', 'c3']],
      ['tool.approval_required', 'thread_1', ['c']],
      ['tool.response_required', 'main', ['c0']],
    ],
  );
});
