import { expect, test } from 'vitest';
import { modelMessage } from '../../test/support/model-message.ts';
import { AT, turnStart, TURN_ID } from '../../test/support/random-turn.ts';
import { isNamed, isShown, mayAnswer, newestAuthor, withRequesters } from './deciders.ts';
import { turnCreated } from './turn.ts';
import { votesOf, waitingAfter } from './tool-records.ts';
import type { ApprovalPolicy } from './records/calls.ts';
import type { UnsequencedRecord } from './records/log.ts';
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

type AskedOf = Parameters<typeof isNamed>[0];

const callOf = (policy: Partial<ApprovalPolicy> = {}, isEscalated = false): AskedOf => ({
  policy: { quorum: 1, onExpiry: 'deny', ...policy },
  isEscalated,
});

const place = { threadId: 'main', toolCallId: 'c1' };
const allow: Answer = { type: 'user.tool_approval', ...place, approval: { status: 'allow' } };
const response: Answer = { type: 'user.tool_response', ...place, content: '' };

const byBoss = { approvers: { subjects: ['boss'], roles: [] } };
const byAdmins = { approvers: { subjects: [], roles: ['admin' as const] } };
const thenChief = { escalate: { afterSeconds: 1, to: { subjects: ['chief'], roles: [] } } };
const thenAdmins = { escalate: { afterSeconds: 1, to: { subjects: [], roles: ['admin' as const] } } };

test.each<[string, AskedOf, Answerer, boolean]>([
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

test('subjects who may send messages give a response, and no policy adds others', () => {
  expect(mayAnswer(callOf(byBoss), response, callerOf('boss'))).toBe(false);
  expect(mayAnswer(callOf(byBoss), response, callerOf('ann', { mayRespond: true }))).toBe(true);
});

test('a stranger to the session sees no other calls than those whose policy names it', () => {
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

const requestedBy = (requesters: string[], policy: Partial<ApprovalPolicy>): AskedOf => {
  return { ...callOf(policy, true), requesters };
};
const others = { excludeRequester: true as const };

test.each<[string, AskedOf, Answerer, boolean]>([
  ['a requester with the right to decide', requestedBy(['ann'], others), callerOf('ann', { mayDecide: true }), false],
  ['another subject with that right', requestedBy(['bob'], others), callerOf('ann', { mayDecide: true }), true],
  ['a requester that is named', requestedBy(['boss'], { ...others, ...byBoss }), callerOf('boss'), false],
  [
    'a requester with a role that is named',
    requestedBy(['ann'], { ...others, ...byAdmins }),
    callerOf('ann', { roles: ['admin'] }),
    false,
  ],
  [
    'a requester to which it is escalated',
    requestedBy(['chief'], { ...others, ...byBoss, ...thenChief }),
    callerOf('chief'),
    false,
  ],
  [
    'a requester whose name alone is another',
    requestedBy(['ann'], others),
    callerOf('ann', { mayDecide: true, slug: 'bob' }),
    false,
  ],
  ['a requester, where they are not excluded', requestedBy(['boss'], byBoss), callerOf('boss'), true],
])('with requesters excluded, whether it may decide: %s', (_, call, caller, may) => {
  const deny: Answer = { type: 'user.tool_approval', ...place, approval: { status: 'deny' } };
  expect([mayAnswer(call, allow, caller), mayAnswer(call, deny, caller)]).toEqual([may, may]);
});

test('a stranger to the session does not see a call that it has asked for, although the policy names it', () => {
  const call = requestedBy(['boss'], { ...others, ...byBoss, ...thenChief });
  const knows = (name: string) => isShown(call, callerOf(name, { isStranger: true }));
  expect([knows('boss'), knows('chief')]).toEqual([false, true]);
});

test('later authors of messages are requesters, too, if the policy excludes them', () => {
  const source = { turnId: TURN_ID, messageId: 'msg_0', stamp: 's', index: 0 };
  const policy = { quorum: 1, onExpiry: 'deny' as const };
  const call = { ...place, needs: 'approval' as const, source, requesters: ['ann'] };
  expect(withRequesters({ ...call, policy: { ...policy, ...others } }, ['bob', 'ann']).requesters).toEqual([
    'ann',
    'bob',
  ]);
  expect(withRequesters({ ...call, policy }, ['bob']).requesters).toEqual(['ann']);
  // To run again, a call whose outcome is unknown takes the same votes.
  const asked = waitingAfter({ ...call, onUnknown: { policy: { ...policy, ...others }, requesters: ['ann'] } }, 'lost');
  expect(asked).toMatchObject({ policy: votesOf({ quorum: 1, ...others }), requesters: ['ann'] });
  expect(asked?.policy?.excludeRequester).toBe(true);
});

test('the newest author is that of a message of a turn, or of one that the turn has got', () => {
  const by = (name: string) => subjectNamed(name);
  const turn = (createdBy: string, input: Parameters<typeof turnCreated>[0]['input'], rest = {}): UnsequencedRecord =>
    turnCreated({ ...turnStart({ createdBy: by(createdBy), input }), ...rest });
  const message = { type: 'user.message' as const, content: 'pay' };
  const steered: UnsequencedRecord = {
    kind: 'user.steered',
    at: AT,
    by: by('cleo'),
    commandId: 'c',
    sessionId: 's',
    content: 'more',
  };
  expect(newestAuthor([turn('ann', [message]), turn('bob', [allow])])).toBe('ann');
  expect(newestAuthor([turn('ann', [message]), turn('bob', [message])])).toBe('bob');
  expect(newestAuthor([turn('ann', [message]), modelMessage()])).toBe('ann');
  expect(newestAuthor([turn('ann', [message]), steered, turn('bob', [allow])])).toBe('cleo');
  expect(newestAuthor([turn('ann', [], { conversation: { blob: 'b' } })])).toBe('ann');
  expect(newestAuthor([turn('bob', [allow]), turn('bob', [])])).toBeUndefined();
});
