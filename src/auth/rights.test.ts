import { expect, test } from 'vitest';
import { mayOnServer, mayOnSession, mayReadAll, refusalOnSession } from './rights.ts';
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
])('what the role %s may do to its own sessions, and to those of others', (role, own, others) => {
  expect(rightsOn(caller(role), 'ann').join(' ')).toBe(own);
  expect(rightsOn(caller(role), 'bob').join(' ')).toBe(others);
});

test('what roles may do on the server', () => {
  expect(ROLES.filter((role) => mayOnServer(caller(role), 'createSessions'))).toEqual(['admin', 'user']);
  expect(ROLES.filter((role) => mayOnServer(caller(role), 'writeAgents'))).toEqual(['admin']);
  expect(ROLES.filter((role) => mayReadAll(caller(role)))).toEqual(['admin', 'approver']);
});

test('several roles may do what any of them may', () => {
  const both = caller('user', 'approver');
  expect(rightsOn(both, 'ann')).toEqual(ACTIONS);
  expect(rightsOn(both, 'bob')).toEqual(['read', 'decide']);
  expect([mayOnServer(both, 'createSessions'), mayOnServer(both, 'writeAgents')]).toEqual([true, false]);
});

test('a refusal says what is possible', () => {
  expect(refusalOnSession(caller('admin'), { subject_id: 'bob' }, 'send')).toBe(
    "with the role admin you can not send messages in somebody else's session; you may: read, cancel, delete",
  );
});
