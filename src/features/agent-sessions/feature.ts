import type { Feature } from '../feature.ts';
import { answerOf, firstMessageOf, sessionTextsReader } from './session-texts.ts';

export const AGENT_SESSIONS: Feature = {
  logReaders: (cipher) => [sessionTextsReader(cipher)],
  tablesOfSessions: ['session_requests', 'session_inputs', 'shared_sessions', 'session_feedback', 'session_texts'],
  readStart: async (start, { logs }) => ({ firstMessage: await firstMessageOf(start, logs) }),
  readEntries: async ({ turn, last }, { logs }) => ({ answer: await answerOf(last, turn.id, logs) }),
  sweep: ({ catalog }, { now, stop }) => catalog.idleTimeouts.end(now.toISOString(), stop),
  sweepAfterTurns: ({ sessionQueue }, { stop }) => sessionQueue.sweep(stop),
};
