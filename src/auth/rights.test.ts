import { expect, test } from 'vitest';
import {
  deciderOf,
  decidersFor,
  groupsOf,
  mayOnServer,
  mayOnSession,
  mayReadAll,
  raisersFor,
  refusalOnSession,
} from './rights.ts';
import type { ApprovalPolicy } from '../core/records/calls.ts';
import type { PendingCall } from '../core/records/pending.ts';
import { ROLES, type Caller, type Role } from '../core/subject.ts';

const ACTIONS = ['read', 'send', 'decide', 'edit', 'cancel', 'delete'] as const;

const caller = (...roles: Role[]): Caller => ({
  subject: { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' },
  roles,
});
const rightsOn = (who: Caller, owner: string) => ACTIONS.filter((one) => mayOnSession(who, { subject_id: owner }, one));

test.each<[Role, string, string]>([
  ['admin', 'read send decide edit cancel delete', 'read cancel delete'],
  ['user', 'read send decide edit cancel delete', ''],
  ['approver', 'read decide', 'read decide'],
])('the rights of the role %s on its own sessions and on those of others', (role, own, others) => {
  expect(rightsOn(caller(role), 'ann').join(' ')).toBe(own);
  expect(rightsOn(caller(role), 'bob').join(' ')).toBe(others);
});

test('the rights of roles on the server', () => {
  expect(ROLES.filter((role) => mayOnServer(caller(role), 'createSessions'))).toEqual(['admin', 'user']);
  expect(ROLES.filter((role) => mayOnServer(caller(role), 'writeAgents'))).toEqual(['admin']);
  expect(ROLES.filter((role) => mayReadAll(caller(role)))).toEqual(['admin', 'approver']);
});

test('a caller with several roles has the rights of each', () => {
  const both = caller('user', 'approver');
  expect(rightsOn(both, 'ann')).toEqual(ACTIONS);
  expect(rightsOn(both, 'bob')).toEqual(['read', 'decide']);
  expect([mayOnServer(both, 'createSessions'), mayOnServer(both, 'writeAgents')]).toEqual([true, false]);
});

test('the error message lists what the caller may do', () => {
  expect(refusalOnSession(caller('admin'), { subject_id: 'bob' }, 'send')).toBe(
    "with the role admin you cannot send messages in another subject's session; you may: read, cancel, delete",
  );
});

test.each<[Role[], string]>([
  [['admin'], 'send:ann decide:ann cancel:ann subject:ann role:admin'],
  [['user'], 'send:ann decide:ann cancel:ann subject:ann role:user'],
  [['approver'], 'decide:ann subject:ann role:approver'],
  [['approver', 'user'], 'send:ann decide:ann cancel:ann subject:ann role:approver role:user'],
  [[], 'subject:ann'],
])(
  'a caller with the roles %j is in the groups of its rights on its own sessions, of its name and its roles',
  (roles, groups) => {
    expect(groupsOf(caller(...roles)).join(' ')).toBe(groups);
  },
);

const approvers = { subjects: ['eve'], roles: ['user' as const] };
const escalate = { afterSeconds: 60, to: { subjects: ['dan'], roles: ['admin' as const] } };

test.each<[string, Pick<PendingCall, 'needs' | 'unknownOutcome'>, Partial<ApprovalPolicy> | undefined, string, string]>(
  [
    ['an approval', { needs: 'approval' }, undefined, 'decide:ann role:approver', ''],
    ['an approval with a policy', { needs: 'approval' }, {}, 'decide:ann role:approver', ''],
    ['an approval by approvers only', { needs: 'approval' }, { approvers }, 'subject:eve role:user', ''],
    [
      'an approval, later by others',
      { needs: 'approval' },
      { escalate },
      'decide:ann role:approver',
      'subject:dan role:admin',
    ],
    [
      'an approval by approvers, later by others',
      { needs: 'approval' },
      { approvers, escalate },
      'subject:eve role:user',
      'subject:dan role:admin',
    ],
    ['a response', { needs: 'response' }, undefined, 'send:ann', ''],
    ['a response, which no policy concerns', { needs: 'response' }, { approvers, escalate }, 'send:ann', ''],
    [
      'an unknown outcome',
      { needs: 'response', unknownOutcome: '?' },
      undefined,
      'send:ann decide:ann role:approver',
      '',
    ],
    [
      'an unknown outcome of a call with approvers',
      { needs: 'response', unknownOutcome: '?' },
      { approvers, escalate },
      'send:ann subject:eve role:user',
      'subject:dan role:admin',
    ],
  ],
)('who answers %s', (_, call, policy, audience, escalatedTo) => {
  const pending = { ...call, ...(policy && { policy: { quorum: 1, onExpiry: 'deny' as const, ...policy } }) };
  const deciders = decidersFor(pending, 'ann');
  expect([deciders.audience.join(' '), deciders.escalatedTo.join(' ')]).toEqual([audience, escalatedTo]);
});

test('the budget of a subject is raised by those with the right on the server, another one by those who may cancel the turn', () => {
  expect(raisersFor('ann', 'subject')).toEqual(['role:admin']);
  for (const scope of ['turn', 'session'] as const) {
    expect(raisersFor('ann', scope)).toEqual(['cancel:ann', 'role:admin']);
  }
});

test('the groups of a caller have its id, not the name that its bearer may choose', () => {
  const bearer = {
    subject: { subjectId: 'https://id/#1', subjectType: 'user', subjectSlug: 'boss' },
    roles: ['user' as const],
  };
  const groups = groupsOf(bearer);
  expect(groups).toContain('subject:https://id/#1');
  expect(groups).not.toContain('subject:boss');
  const policy = { quorum: 1, onExpiry: 'deny' as const, approvers: { subjects: ['https://id/#1'], roles: [] } };
  expect(decidersFor({ needs: 'approval', policy }, 'ann').audience).toEqual(['subject:https://id/#1']);
});

test('requesters are excluded in the index, but for the owner that may say what has happened', () => {
  const policy = { quorum: 1, onExpiry: 'deny' as const, excludeRequester: true as const };
  const call = { policy, requesters: ['ann', 'bob'] };
  const excluded = (of: Parameters<typeof decidersFor>[0]) =>
    decidersFor(of, 'ann').audience.filter((one) => one.startsWith('excluded:'));
  expect(excluded({ ...call, needs: 'approval' })).toEqual(['excluded:ann', 'excluded:bob']);
  expect(excluded({ ...call, needs: 'response', unknownOutcome: 'lost' })).toEqual(['excluded:bob']);
  expect(excluded({ requesters: ['ann'], policy: { quorum: 1, onExpiry: 'deny' }, needs: 'approval' })).toEqual([]);
  expect(deciderOf(caller('user')).excluded).toBe('excluded:ann');
});
