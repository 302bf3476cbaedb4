import type { AnswerableCall } from './records/pending.ts';

export const ACTION_KINDS = ['approval', 'response', 'unknown_outcome', 'sign_in', 'budget'] as const;

export type ActionKind = (typeof ACTION_KINDS)[number];

export function actionKind({ needs, unknownOutcome }: AnswerableCall): ActionKind {
  return unknownOutcome === undefined ? needs : 'unknown_outcome';
}
