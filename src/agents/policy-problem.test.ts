import { expect, test } from 'vitest';
import type { SessionOwner } from '../core/history.ts';
import type { DecisionPolicy } from '../spec/agent-spec.ts';
import { policyProblem, type PolicyServer } from './policy-problem.ts';

const ISSUER = 'https://id.example/realm';
const withTokens: PolicyServer = { issuer: ISSUER, isKeyless: false };
const withKeys: PolicyServer = { issuer: undefined, isKeyless: false };
const keyless: PolicyServer = { issuer: undefined, isKeyless: true };

/** The place that is at fault in the second of two policies. */
function placeOf(
  policy: Partial<DecisionPolicy>,
  {
    owner = null,
    server = withTokens,
    pause = 'wait',
  }: { owner?: SessionOwner | null; server?: PolicyServer; pause?: 'wait' | 'end' } = {},
): string | undefined {
  const policies: DecisionPolicy[] = [
    { match: {}, decision: 'deny' },
    { match: {}, decision: 'ask', ...policy },
  ];
  const problem = policyProblem(
    { model: { name: 'm' }, config: { pause, decision_policies: policies } },
    owner,
    server,
  );
  return problem?.param.replace('config.decision_policies.1.', '');
}

const naming = (...subjects: string[]) => ({ approvers: { subjects } });
const escalating = (to: NonNullable<DecisionPolicy['approvers']>) => ({ escalate: { after_seconds: 1, to } });

test.each<[string, PolicyServer, boolean]>([
  ['ann', withTokens, true],
  ['ann@example.com', withKeys, true],
  [`${ISSUER}#u 1`, withTokens, true],
  [`${ISSUER}#u-1`, withKeys, false],
  [`${ISSUER}#`, withTokens, false],
  [ISSUER, withTokens, false],
  [`${ISSUER}2#u-1`, withTokens, false],
  ['https://other.example#u-1', withTokens, false],
  ['Ann Lee', withTokens, false],
  ['a#b', withTokens, false],
])('a policy may name %j, with %j: %s', (subject, server, may) => {
  expect(placeOf(naming('bob', subject), { server })).toBe(may ? undefined : 'approvers.subjects.1');
  expect(placeOf(escalating({ subjects: [subject] }), { server })).toBe(may ? undefined : 'escalate.to.subjects.0');
});

test('the error for an unknown subject names the possible kinds of ids', () => {
  const messageOf = (server: PolicyServer) =>
    policyProblem(
      {
        model: { name: 'm' },
        config: { pause: 'wait', decision_policies: [{ match: {}, decision: 'ask', ...naming('Ann Lee') }] },
      },
      null,
      server,
    )?.message;
  expect(messageOf(withTokens)).toBe(
    `"Ann Lee" is the id of no subject: give the name of an API key, or ${ISSUER}#<sub> for the bearer of a token`,
  );
  expect(messageOf(withKeys)).toBe('"Ann Lee" is the id of no subject: give the name of an API key');
});

const author = (...draftRoles: string[]): SessionOwner => ({ subjectId: 'ann', draftRoles });

test.each<[string, Partial<DecisionPolicy>, SessionOwner | null, string | undefined]>([
  ['a user names itself', naming('ann'), author('user'), undefined],
  ['a user names another subject', naming('ann', 'bob'), author('user'), 'approvers.subjects.1'],
  ['a user names its own role', { approvers: { roles: ['user'] } }, author('user'), undefined],
  ['a user names another role', { approvers: { roles: ['user', 'approver'] } }, author('user'), 'approvers.roles.1'],
  ['a user names one of its two roles', { approvers: { roles: ['approver'] } }, author('user', 'approver'), undefined],
  ['a user escalates to another subject', escalating({ subjects: ['bob'] }), author('user'), 'escalate.to.subjects.0'],
  ['a user escalates to another role', escalating({ roles: ['admin'] }), author('user'), 'escalate.to.roles.0'],
  ['an author whose roles are gone names a role', { approvers: { roles: ['user'] } }, author(), 'approvers.roles.0'],
  [
    'an admin names others',
    { approvers: { subjects: ['bob'], roles: ['approver'] } },
    author('user', 'admin'),
    undefined,
  ],
  ['a registered agent in a session of a user', naming('bob'), { subjectId: 'ann', draftRoles: null }, undefined],
  ['an agent that is registered', naming('bob'), null, undefined],
])('%s', (_, policy, owner, place) => {
  expect(placeOf(policy, { owner })).toBe(place);
});

test('requesters cannot be excluded where there is one subject, or in a turn that ends', () => {
  const policy = { exclude_requester: true };
  expect([placeOf(policy), placeOf(policy, { server: keyless }), placeOf(policy, { pause: 'end' })]).toEqual([
    undefined,
    'exclude_requester',
    'exclude_requester',
  ]);
  expect([
    placeOf({ exclude_requester: false }, { server: keyless, pause: 'end' }),
    placeOf(naming('ann'), { server: keyless }),
  ]).toEqual([undefined, undefined]);
});
