import { expect, test } from 'vitest';
import type { SessionRow } from '../../../catalog/schema.ts';
import type { CallAction } from '../../../core/records/calls.ts';
import type { PendingCall } from '../../../core/records/pending.ts';
import { subjectNamed, type Role } from '../../../core/subject.ts';
import { rulesToAdd, type RuleToRemember } from './remember.ts';

const NOW = Date.parse('2026-11-21T10:00:00.000Z');
const PARENT = { threadId: 'main', toolCallId: 'cell' };

// oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what is read of it
const session = { id: 'ses_1', subject_id: 'ann', agent_name: 'helper', agent_version: 1 } as SessionRow;
// oxlint-disable-next-line typescript/no-unsafe-type-assertion -- no text was moved into it
const blobs = {} as Parameters<typeof rulesToAdd>[1]['blobs'];

function pendingCall(action: Partial<CallAction>, more: Partial<PendingCall> = {}): PendingCall {
  return {
    threadId: 'main',
    toolCallId: 'c1',
    needs: 'approval',
    source: { turnId: 't', messageId: 'm', stamp: '', index: 0 },
    action: {
      type: 'shell',
      info: { type: 'system', name: 'shell' },
      arguments: JSON.stringify({ command: 'git push origin', cwd: '/workspace' }),
      ...action,
    },
    ...more,
  };
}

async function remember(
  given: Partial<RuleToRemember>,
  {
    pending = pendingCall({}),
    who = 'ann',
    role = 'user',
    of = session,
  }: { pending?: PendingCall; who?: string; role?: Role; of?: SessionRow } = {},
) {
  const asked: RuleToRemember = {
    threadId: 'main',
    toolCallId: 'c1',
    effect: 'allow',
    scope: 'session',
    rule: undefined,
    expiresInSeconds: undefined,
    param: 'input.0.approval.remember',
    ...given,
  };
  const caller = { subject: subjectNamed(who), roles: [role] };
  return rulesToAdd([asked], { session: of, caller, pending: [pending], threads: [], blobs, now: NOW });
}

test('without a rule, the suggested one is made, with the effect of the decision', async () => {
  const place = { scope: 'session', sessionId: 'ses_1' };
  expect(await remember({})).toEqual([{ place, rule: { effect: 'allow', action: 'shell', command: 'git push *' } }]);
  expect(await remember({ effect: 'deny', expiresInSeconds: 60 })).toEqual([
    {
      place,
      rule: { effect: 'deny', action: 'shell', command: 'git push *', expires_at: '2026-11-21T10:01:00.000Z' },
    },
  ]);
});

test('a rule for all sessions is made by their owner alone, and for the agent of the session', async () => {
  const place = { scope: 'always', subjectId: 'ann', agentName: 'helper' };
  expect(await remember({ scope: 'always' })).toMatchObject([{ place }]);
  const boss = { who: 'boss', role: 'approver' as const };
  await expect(remember({ scope: 'always' }, boss)).rejects.toMatchObject({ code: 'forbidden' });
  expect(await remember({}, boss)).toMatchObject([{ place: { scope: 'session' } }]);
  await expect(remember({}, { who: 'bob' })).rejects.toMatchObject({ code: 'forbidden' });
  const draft = { ...session, agent_version: null };
  await expect(remember({ scope: 'always' }, { of: draft })).rejects.toMatchObject({ code: 'invalid_rule' });
});

test('a rule for a cell is made inside code alone', async () => {
  const pending = pendingCall({ parent: PARENT }, { threadId: 'code_1' });
  expect(await remember({ scope: 'cell', threadId: 'code_1' }, { pending })).toMatchObject([
    { place: { scope: 'cell', sessionId: 'ses_1', ...PARENT } },
  ]);
  await expect(remember({ scope: 'cell' })).rejects.toMatchObject({ code: 'invalid_rule' });
});

test('a rule matches the call that is decided', async () => {
  const named = (command: string) => remember({ rule: { action: 'shell', command } });
  expect(await named('git *')).toHaveLength(1);
  await expect(named('git pull *')).rejects.toMatchObject({ code: 'invalid_rule' });
  await expect(remember({ rule: { action: 'code' } })).rejects.toMatchObject({ code: 'invalid_rule' });
  const opaque = { pending: pendingCall({ isOpaque: true }) };
  await expect(remember({ rule: { action: 'shell', command: 'git *' } }, opaque)).rejects.toThrow('does not match');
  expect(await remember({}, opaque)).toMatchObject([{ rule: { command: 'git push origin' } }]);
});

test('no rule is made where a policy says who decides, or without an action', async () => {
  for (const policy of [
    { quorum: 2 },
    { quorum: 1, excludeRequester: true as const },
    { quorum: 1, approvers: { subjects: ['ann'], roles: [] } },
  ]) {
    const pending = pendingCall({}, { policy: { onExpiry: 'deny', ...policy } });
    await expect(remember({}, { pending })).rejects.toMatchObject({ code: 'remember_not_allowed' });
  }
  const { action: _, ...plain } = pendingCall({});
  await expect(remember({}, { pending: plain })).rejects.toMatchObject({ code: 'remember_not_allowed' });
});

test('an answer to a call that does not wait makes no rule', async () => {
  expect(await remember({ toolCallId: 'other' })).toEqual([]);
});
