import type { Feature } from '../feature.ts';
import { actionChanges, answersOf } from './action-changes.ts';
import { ActionIndex, inboxReader } from './action-index.ts';

export const INBOX: Feature = {
  logReaders: (cipher) => [inboxReader(new ActionIndex(cipher))],
  tablesOfSessions: ['actions', 'kept_answers'],
  tablesOfTurns: ['actions', 'kept_answers'],
  columnsOf: ({ turnId, answers }, cipher) => ({ answers: new ActionIndex(cipher).sealAnswers(turnId, answers) }),
  readStart: (start) => ({ answers: answersOf(start) }),
  readEntries: async ({ turn, entries }, { catalog, logs }) => ({
    changes: await actionChanges(entries, { catalog, logs, sessionId: turn.session_id }),
  }),
};
