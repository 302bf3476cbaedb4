import type { Subject } from './subject.ts';
import { callKey } from './tool-records.ts';
import type { Answer } from './turn-command.ts';

/** An answer of a subject to a call that waits. */
export interface Vote {
  by: Subject;
  /** What was answered, as a text that is equal for equal answers. */
  answer: string;
  /** The call was allowed with other arguments since: the vote no longer counts. */
  isVoid?: true;
}

/**
 * Whether a subject has answered the same before. A repetition changes nothing, also if the vote no longer counts: the
 * response to the first request may have been lost.
 */
export function isRepeated(votes: Vote[], by: Subject, answer: Answer): boolean {
  return votesOf(votes, by).some((vote) => vote.answer === answerText(answer));
}

/** Whether a vote of the subject counts, which it cannot take back. */
export function hasVoted(votes: Vote[], by: Subject): boolean {
  return votesOf(votes, by).some(({ isVoid }) => !isVoid);
}

/**
 * The votes after another one. All votes that count are for the same arguments: a vote for others is a new proposal,
 * and earlier voters may vote again.
 */
export function withVote(votes: Vote[], by: Subject, answer: Answer): Vote[] {
  const text = answerText(answer);
  const others = votes.map((vote): Vote => (vote.answer === text ? vote : { ...vote, isVoid: true }));
  return [...others, { by, answer: text }];
}

export function countVotes(votes: Vote[]): number {
  return votes.filter(({ isVoid }) => !isVoid).length;
}

function votesOf(votes: Vote[], { subjectId }: Subject): Vote[] {
  return votes.filter(({ by }) => by.subjectId === subjectId);
}

/** Equal for equal answers of a subject to a call. */
export function answerKey(answer: Answer, { subjectId }: Subject): string {
  return JSON.stringify([subjectId, callKey(answer), answerText(answer)]);
}

function answerText(answer: Answer): string {
  if (answer.type === 'user.tool_response') return answer.hash ?? JSON.stringify(answer.content);
  const { approval, remembers } = answer;
  const text = approval.status === 'allow' && approval.edited ? `allow ${approval.edited.hash}` : approval.status;
  return remembers ? `${text} always` : text;
}
