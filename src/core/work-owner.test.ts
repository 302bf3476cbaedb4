import { expect, test } from 'vitest';
import { ownerOfCall, ownerOfThread } from './work-owner.ts';

const owner = { subjectId: 'ann', draftRoles: null };
const ofDraft = { subjectId: 'ann', draftRoles: ['user'] };

test('a call that a client has brought has the rights of a draft of the client, and any other one those of its turn', () => {
  const route = { to: 'server' as const, effect: 'once' as const, approval: true, callHash: '' };
  expect(ownerOfCall(owner, { route: { ...route, draftRoles: ['user'] } })).toEqual(ofDraft);
  expect(ownerOfCall(owner, { route })).toBe(owner);
  expect(ownerOfCall(ofDraft, { route: { to: 'client' } })).toBe(ofDraft);
});

test('a registered sub-agent has its own rights, a dynamic one those of the call that started it', () => {
  expect(ownerOfThread(ofDraft, { isRegistered: true })).toEqual(owner);
  expect(ownerOfThread(owner, { draftRoles: ['user'] })).toEqual(ofDraft);
  expect(ownerOfThread(ofDraft, {})).toBe(ofDraft);
});
