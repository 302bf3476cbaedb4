import type { Feature } from '../feature.ts';
import { TOOLKITS_PART } from './client-toolkits.ts';
import { runSecretsReader } from './run-secrets.ts';
import { runSummariesReader } from './run-summaries.ts';

export const RUN_SUPPORT: Feature = {
  logReaders: (cipher) => [runSecretsReader(cipher), runSummariesReader(cipher)],
  tablesOfSessions: ['run_secrets', 'run_summaries'],
  // Reads the log from its start, so only once, for the last entries.
  readEntries: async ({ turn, last, isLast }, { runStates }) =>
    (isLast ? await runStates.after(turn, last.ordinal) : undefined) ?? {},
  modelCallPart: () => TOOLKITS_PART,
};
