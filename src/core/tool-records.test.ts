import { expect, test } from 'vitest';
import type { PendingCall } from './records.ts';
import { denial, hasNoResult } from './tool-records.ts';

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
