import { expect, test } from 'vitest';
import { isNamed, isShown, mayAnswer, type DecidableCall } from './deciders.ts';
import type { ApprovalPolicy } from './records.ts';
import { isTokenSubjectId, SUBJECT_NAME, subjectNamed, tokenSubjectId, type Role } from './subject.ts';
import type { Answer, Answerer } from './turn-command.ts';

const ISSUER = 'https://id.example/realm';

/** A caller with no rights in the session; a bearer's name is what its provider lets it choose. */
function callerOf(
  subjectId: string,
  { roles = ['user'], slug = subjectId, ...rights }: Partial<Answerer> & { slug?: string; roles?: Role[] } = {},
): Answerer {
  return {
    subject: { ...subjectNamed(subjectId), subjectSlug: slug },
    roles,
    mayDecide: false,
    mayRespond: false,
    ...rights,
  };
}

const callOf = (policy: Partial<ApprovalPolicy> = {}, isEscalated = false): DecidableCall => ({
  pending: { policy: { quorum: 1, onExpiry: 'deny', ...policy } },
  isEscalated,
});

const place = { threadId: 'main', toolCallId: 'c1' };
const allow: Answer = { type: 'user.tool_approval', ...place, approval: { status: 'allow' } };
const response: Answer = { type: 'user.tool_response', ...place, content: '' };

const byBoss = { approvers: { subjects: ['boss'], roles: [] } };
const byAdmins = { approvers: { subjects: [], roles: ['admin' as const] } };
const thenChief = { escalate: { afterSeconds: 1, to: { subjects: ['chief'], roles: [] } } };
const thenAdmins = { escalate: { afterSeconds: 1, to: { subjects: [], roles: ['admin' as const] } } };

test.each<[string, DecidableCall, Answerer, boolean]>([
  ['a subject that is named, by its id', callOf(byBoss), callerOf('boss'), true],
  ['a subject whose name alone is named', callOf(byBoss), callerOf(`${ISSUER}#1`, { slug: 'boss' }), false],
  [
    'a bearer, by the id of its token',
    callOf({ approvers: { subjects: [`${ISSUER}#1`], roles: [] } }),
    callerOf(`${ISSUER}#1`),
    true,
  ],
  ['another subject', callOf(byBoss), callerOf('ann'), false],
  ['a role that is named', callOf(byAdmins), callerOf('ann', { roles: ['user', 'admin'] }), true],
  ['another role', callOf(byAdmins), callerOf('ann', { roles: ['user', 'approver'] }), false],
  ['a right in the session, where approvers are named', callOf(byBoss), callerOf('ann', { mayDecide: true }), false],
  ['a right in the session, without approvers', callOf(), callerOf('ann', { mayDecide: true }), true],
  ['no right in the session, without approvers', callOf(), callerOf('ann'), false],
  ['a subject before the escalation to it', callOf({ ...byBoss, ...thenChief }), callerOf('chief'), false],
  ['a subject after the escalation to it', callOf({ ...byBoss, ...thenChief }, true), callerOf('chief'), true],
  [
    'a role before the escalation to it',
    callOf({ ...byBoss, ...thenAdmins }),
    callerOf('ann', { roles: ['admin'] }),
    false,
  ],
  [
    'a role after the escalation to it',
    callOf({ ...byBoss, ...thenAdmins }, true),
    callerOf('ann', { roles: ['admin'] }),
    true,
  ],
  ['an approver after the escalation', callOf({ ...byBoss, ...thenChief }, true), callerOf('boss'), true],
  ['another subject after the escalation', callOf({ ...byBoss, ...thenChief }, true), callerOf('ann'), false],
])('%s may decide', (_, call, caller, may) => {
  expect(mayAnswer(call, allow, caller)).toBe(may);
});

test('a response is given by those who may send messages, whoever may decide', () => {
  expect(mayAnswer(callOf(byBoss), response, callerOf('boss'))).toBe(false);
  expect(mayAnswer(callOf(byBoss), response, callerOf('ann', { mayRespond: true }))).toBe(true);
});

test('a stranger to the session knows of no other calls than those whose policy names it', () => {
  const stranger = callerOf('boss', { isStranger: true });
  expect([isShown(callOf(byBoss), stranger), isShown(callOf(byAdmins), stranger), isShown(callOf(), stranger)]).toEqual(
    [true, false, false],
  );
  expect(isShown(callOf(), callerOf('ann'))).toBe(true);
  expect(isNamed(callOf(), callerOf('ann', { mayDecide: true }))).toBe(false);
});

test('no key has the subject of a token, and no token that of a key', () => {
  const id = tokenSubjectId(ISSUER, 'u-1');
  expect([SUBJECT_NAME.test(id), SUBJECT_NAME.test('a#b'), SUBJECT_NAME.test('ann@example.com')]).toEqual([
    false,
    false,
    true,
  ]);
  expect(isTokenSubjectId(id, ISSUER)).toBe(true);
  for (const other of ['ann', `${ISSUER}#`, `${ISSUER}/2#u-1`, ISSUER])
    expect(isTokenSubjectId(other, ISSUER)).toBe(false);
});
