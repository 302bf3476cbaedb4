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
