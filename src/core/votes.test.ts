import { expect, test } from 'vitest';
import type { Answer } from './turn-command.ts';
import { countVotes, hasVoted, isRepeated, withVote } from './votes.ts';

const [ann, bob] = ['ann', 'bob'].map((name) => ({ subjectId: name, subjectType: 'user' as const, subjectSlug: name }));
const key = { threadId: 'main', toolCallId: 'c' };
const allow: Answer = { type: 'user.tool_approval', ...key, approval: { status: 'allow' } };
const always: Answer = { ...allow, remembers: true };
const edited: Answer = { ...allow, approval: { status: 'allow', edited: { arguments: '{}', hash: 'e' } } };

test('an answer is repeated by the same subject with the same words; to allow is not to allow always', () => {
  const votes = withVote([], ann!, allow);
  expect(isRepeated(votes, ann!, allow)).toBe(true);
  expect(isRepeated(votes, bob!, allow)).toBe(false);
  expect(isRepeated(votes, ann!, always)).toBe(false);
  expect(isRepeated(votes, ann!, edited)).toBe(false);
});

test('a vote for other arguments voids those before it, which may be repeated and no longer count', () => {
  const votes = withVote(withVote([], ann!, allow), bob!, edited);
  expect(countVotes(votes)).toBe(1);
  expect([hasVoted(votes, ann!), hasVoted(votes, bob!)]).toEqual([false, true]);
  expect(isRepeated(votes, ann!, allow)).toBe(true);
});
