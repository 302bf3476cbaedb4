import { expect, test } from 'vitest';
import type { Role } from '../core/subject.ts';
import type { DecisionPolicy } from '../spec/agent-spec.ts';
import { policyWarnings, type KnownSubjects } from './policy-warnings.ts';

const knownOf = (roles: Record<string, Role[]>, hasBearers = false): KnownSubjects => ({
  roles: new Map(Object.entries(roles).map(([id, own]) => [id, new Set(own)])),
  hasBearers,
});
const team = knownOf({ root: ['admin'], ann: ['user'], bob: ['approver'], eve: ['approver'] });
const alone = knownOf({ local: ['admin'] });
const bearers = knownOf({ ann: ['user'] }, true);
const token = 'https://id.example#u-1';

test.each<[string, Partial<DecisionPolicy>, KnownSubjects, string[]]>([
  ['known subjects', { approvers: { subjects: ['ann', 'bob'] } }, team, []],
  ['the bearer of a token, of which nothing is known', { approvers: { subjects: [token] } }, bearers, []],
  [
    'a subject without a key',
    { approvers: { subjects: ['bob', 'zed'] } },
    team,
    ['.approvers.subjects.1: no working API key has the name zed'],
  ],
  [
    'one to escalate to without a key',
    { escalate: { after_seconds: 1, to: { subjects: ['zed'] } } },
    team,
    ['.escalate.to.subjects.0: no working API key has the name zed'],
  ],
  [
    'more than those with a key',
    { approvers: { subjects: ['ann', 'zed'] }, quorum: 2 },
    team,
    [
      '.approvers.subjects.1: no working API key has the name zed',
      ': 2 must allow a call, and of the known subjects at most 1 may decide',
    ],
  ],
  ['enough named subjects', { approvers: { subjects: ['ann', 'bob'] }, quorum: 2 }, team, []],
  [
    'too few named subjects',
    { approvers: { subjects: ['ann', 'bob'] }, quorum: 3 },
    team,
    [': 3 must allow a call, and of the known subjects at most 2 may decide'],
  ],
  [
    'too few, also where there are bearers',
    { approvers: { subjects: [token] }, quorum: 2 },
    bearers,
    [': 2 must allow a call, and of the known subjects at most 1 may decide'],
  ],
  [
    'too few until the escalation',
    { approvers: { subjects: ['ann'] }, escalate: { after_seconds: 1, to: { roles: ['approver'] } }, quorum: 3 },
    team,
    [],
  ],
  [
    'a subject with a role that is counted once',
    { approvers: { subjects: ['bob'], roles: ['approver'] }, quorum: 3 },
    team,
    [': 3 must allow a call, and of the known subjects at most 2 may decide'],
  ],
  [
    'a role that no key has',
    { approvers: { roles: ['approver'] } },
    alone,
    [': 1 must allow a call, and of the known subjects at most 0 may decide'],
  ],
  ['a role that bearers may have', { approvers: { roles: ['approver'] }, quorum: 9 }, bearers, []],
  [
    'approvers without an entry',
    { approvers: {} },
    team,
    [': 1 must allow a call, and of the known subjects at most 0 may decide'],
  ],
  ['the owner, by default', {}, alone, []],
  ['the owner and approvers, by default', { quorum: 3 }, team, []],
  [
    'more than the owner and approvers',
    { quorum: 4 },
    team,
    [': 4 must allow a call, and of the known subjects at most 3 may decide'],
  ],
  ['others than the owner', { exclude_requester: true, quorum: 2 }, team, []],
  [
    'more than there are beside the owner',
    { exclude_requester: true, quorum: 3 },
    team,
    [': 3 must allow a call, and of the known subjects at most 2 may decide beside the one that asks'],
  ],
  [
    'one, who is not the owner of all sessions',
    { approvers: { subjects: ['ann'] }, exclude_requester: true },
    team,
    [],
  ],
  [
    'the only subject',
    { approvers: { subjects: ['ann'] }, exclude_requester: true },
    knownOf({ ann: ['user'] }),
    [': 1 must allow a call, and of the known subjects at most 0 may decide beside the one that asks'],
  ],
  ['no approvers, since calls are denied', { decision: 'deny', quorum: 9 }, team, []],
])('a policy that needs %s', (_, policy, known, warnings) => {
  const policies: DecisionPolicy[] = [{ match: {}, decision: 'ask', ...policy }];
  const found = policyWarnings({ model: { name: 'm' }, config: { decision_policies: policies } }, known);
  expect(found).toEqual(warnings.map((one) => `config.decision_policies.0${one}`));
});
