import { expect, test } from 'vitest';
import { refuseInput, titleOf } from './input-rules.ts';
import type { ApprovalPolicy } from './records/calls.ts';
import type { PendingCall } from './records/pending.ts';

const NOW = Date.parse('2026-11-28T08:00:00.000Z');

const message = (content: string) => ({ type: 'user.message' as const, content });
const responseTo = (toolCallId: string) => {
  return { type: 'user.tool_response' as const, threadId: 'main', toolCallId, content: 'done' };
};

test.each([
  [[], null],
  [[message('  short  ')], 'short'],
  [[message(' '), message('second')], 'second'],
  [[message('😀'.repeat(60))], '😀'.repeat(50)],
  [[message('a\0b')], 'ab'],
  [[responseTo('a'), message('after an answer')], 'after an answer'],
  [
    [
      {
        type: 'user.message' as const,
        content: [
          { type: 'text' as const, text: '\n' },
          { type: 'text' as const, text: 'part' },
        ],
      },
    ],
    'part',
  ],
])('%j is titled %j', (input, title) => {
  expect(titleOf(input)).toBe(title);
});

test('a call that waits for a sign-in allows any input, but no answer', () => {
  const source = { turnId: 'turn_0', messageId: 'msg_0', stamp: 's', index: 0 };
  const pending = [{ threadId: 'main', toolCallId: 'a', needs: 'sign_in' as const, source }];
  expect(refuseInput([], pending, NOW)).toBeUndefined();
  expect(refuseInput([message('hello')], pending, NOW)).toBeUndefined();
  expect(refuseInput([responseTo('a')], pending, NOW)?.code).toBe('call_not_pending');
});

test('code that waits for no decision any more allows any input, and no answer', () => {
  const source = { turnId: 'turn_0', messageId: 'msg_0', stamp: 's', index: 0 };
  const action = { type: 'shell', info: { type: 'system', name: 'shell' }, arguments: '{}', expiresAt: NOW } as const;
  const call: PendingCall = { threadId: 'code_1', toolCallId: 'a', needs: 'approval', source, action };
  const allow = {
    type: 'user.tool_approval',
    threadId: 'code_1',
    toolCallId: 'a',
    approval: { status: 'allow' },
  } as const;
  const codesAt = (now: number) => [[message('hello')], [allow]].map((input) => refuseInput(input, [call], now)?.code);
  expect(codesAt(NOW - 1)).toEqual(['actions_pending', undefined]);
  expect(codesAt(NOW)).toEqual([undefined, 'call_not_pending']);
});

test('an input answers each call that waits, and each once', () => {
  const source = { turnId: 'turn_0', messageId: 'msg_0', stamp: 's', index: 0 };
  const pending = ['a', 'b'].map((toolCallId): PendingCall => ({
    threadId: 'main',
    toolCallId,
    needs: 'response',
    source,
  }));
  const codeOf = (...input: Parameters<typeof refuseInput>[0]) => refuseInput(input, pending, NOW)?.code;
  const [a, b] = [responseTo('a'), responseTo('b')];
  expect(codeOf(a, b)).toBeUndefined();
  expect([codeOf(), codeOf(message('hello')), codeOf(a), codeOf(a, a)]).toEqual([
    'actions_pending',
    'actions_pending',
    'calls_unanswered',
    'call_answered_twice',
  ]);
});

test('an answer is of the kind for which its call waits, and changes arguments only if the policy allows it', () => {
  const source = { turnId: 'turn_0', messageId: 'msg_0', stamp: 's', index: 0 };
  const call = { threadId: 'main', toolCallId: 'a', source };
  const approval = { status: 'allow' as const, edited: { arguments: '{}', hash: 'h' } };
  const edit = { type: 'user.tool_approval' as const, threadId: 'main', toolCallId: 'a', approval };
  const policy: ApprovalPolicy = { quorum: 1, onExpiry: 'deny' };
  expect(refuseInput([edit], [{ ...call, needs: 'response' }], NOW)?.code).toBe('call_not_pending');
  expect(refuseInput([edit], [{ ...call, needs: 'approval', policy }], NOW)).toBeUndefined();
  const keeping = { ...policy, mayEditArguments: false as const };
  expect(refuseInput([edit], [{ ...call, needs: 'approval', policy: keeping }], NOW)?.code).toBe('edit_not_allowed');
});

/** Whether the next turn may begin with this decision on a call with this policy. */
function refusalOf(status: 'allow' | 'deny', policy: Partial<ApprovalPolicy> | undefined) {
  const source = { turnId: 'turn_0', messageId: 'msg_0', stamp: 's', index: 0 };
  const call: PendingCall = {
    threadId: 'main',
    toolCallId: 'a',
    needs: 'approval',
    source,
    ...(policy && { policy: { quorum: 1, onExpiry: 'deny', ...policy } }),
  };
  const decision = { type: 'user.tool_approval' as const, threadId: 'main', toolCallId: 'a', approval: { status } };
  return refuseInput([decision], [call], NOW);
}

const roles = { subjects: [], roles: ['approver' as const] };

test.each<[string, Partial<ApprovalPolicy> | undefined, boolean]>([
  ['no policy', undefined, true],
  ['a policy of one vote of any decider', {}, true],
  ['a quorum', { quorum: 2 }, false],
  ['approvers', { approvers: roles }, false],
  ['a quorum of approvers', { quorum: 2, approvers: roles }, false],
])('the next turn may allow a call of %s: only one vote of any decider needs no count', (_, policy, mayAllow) => {
  const refusal = {
    code: 'not_an_approver',
    message: expect.stringContaining('can only be denied here: its policy needs votes'),
  };
  expect(refusalOf('allow', policy)).toEqual(mayAllow ? undefined : refusal);
  expect(refusalOf('deny', policy)).toBeUndefined();
});

test.each<[string, Partial<ApprovalPolicy>, 'allow' | 'deny', by: boolean, string | undefined]>([
  [
    'allowed by an approver that has answered it by itself',
    { approvers: { subjects: ['boss'], roles: [] } },
    'allow',
    true,
    undefined,
  ],
  [
    'allowed by the creator of the turn',
    { approvers: { subjects: ['boss'], roles: [] } },
    'allow',
    false,
    'not_an_approver',
  ],
  ['allowed by one of several', { quorum: 2 }, 'allow', true, 'not_an_approver'],
  ['denied by the creator of the turn', { approvers: { subjects: ['boss'], roles: [] } }, 'deny', false, undefined],
  [
    'denied by the creator of the turn, with requesters excluded',
    { excludeRequester: true },
    'deny',
    false,
    'not_an_approver',
  ],
  ['denied by itself, with requesters excluded', { excludeRequester: true }, 'deny', true, undefined],
  ['allowed by itself, with requesters excluded', { excludeRequester: true }, 'allow', true, undefined],
  ['allowed, with a policy that names no approvers', {}, 'allow', false, undefined],
])('a call that a turn has ended on is %s', (_, policy, status, isKept, code) => {
  const source = { turnId: 'turn_0', messageId: 'msg_0', stamp: 's', index: 0 };
  const call = { threadId: 'main', toolCallId: 'a', needs: 'approval' as const, source };
  const by = { subjectId: 'boss', subjectType: 'user', subjectSlug: 'boss' };
  const answer = { type: 'user.tool_approval' as const, threadId: 'main', toolCallId: 'a', approval: { status } };
  const pending = [{ ...call, policy: { quorum: 1, onExpiry: 'deny' as const, ...policy } }];
  expect(refuseInput([{ ...answer, ...(isKept && { by }) }], pending, NOW)?.code).toBe(code);
});
