import { expect, test } from 'vitest';
import { AT, continuation, turnStart } from '../../test/support/random-turn.ts';
import { TURN_RULES, type TurnStart } from './history.ts';
import { Turn } from './turn.ts';
import type { PendingCall } from './records/pending.ts';
import type { OpenThread } from './records/threads.ts';
import { currentStart, type EarlierStart } from './earlier-start.ts';

const parent = { threadId: 'main', toolCallId: 'a' };
const thread: OpenThread = {
  threadId: 'thr_1',
  title: 't',
  parent,
  depth: 1,
  specHash: 'a',
  hasServers: false,
  iterations: 5,
  steps: 2,
};
const pending: PendingCall = {
  threadId: 'thr_1',
  toolCallId: 'b',
  needs: 'sign_in',
  source: { turnId: 't', messageId: 'm', stamp: 's', index: 0 },
};

/** A start as an earlier version has written it. */
function earlier(more: Pick<EarlierStart, 'resumes' | 'threads' | 'carry'>): TurnStart {
  const { resumes: _, carry: __, ...start } = turnStart({ rules: 2 });
  return currentStart({ ...start, ...more });
}

test('a start of now stays as it is', () => {
  const start = turnStart({ rules: TURN_RULES, resumes: { pending: [pending] } });
  expect(currentStart(start)).toBe(start);
});

test('what a turn of earlier rules resumes is in one field, if there is anything', () => {
  expect(earlier({ resumes: [] })).toEqual(turnStart({ rules: 2 }));
  expect(earlier({ resumes: [pending] }).resumes).toEqual({ pending: [pending] });
  expect(earlier({ resumes: [pending], threads: [thread] }).resumes).toEqual({ pending: [pending], threads: [thread] });
});

test('the log of a run that continues one of earlier rules closes its sub-agents', () => {
  const { threads: _, results: __, ...progress } = continuation({ ordinal: 7 });
  const start = earlier({ resumes: [], carry: { ...progress, step: 3, threads: [thread], actions: {} } });
  const projection = new Turn();
  projection.started(start);
  expect([projection.thread('main').steps, projection.subAgents]).toMatchObject([3, [{ threadId: 'thr_1' }]]);
  const entries = projection.feed({ type: 'closed', at: AT, close: { how: 'terminated', reason: 'abandoned' } });
  expect(entries.map(({ ordinal, record }) => `${ordinal} ${record.kind}`)).toEqual([
    '8 thread.done',
    '9 tool.response',
    '10 turn.done',
  ]);
});
