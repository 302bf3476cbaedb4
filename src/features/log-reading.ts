import type { LogReading } from '../catalog/log-reader.ts';
import type { TurnLogReader } from '../engine/turn-log-reader.ts';
import { answerOf, firstMessageOf } from './agent-sessions/session-texts.ts';
import type { Catalog } from './catalog.ts';
import { endedAgents } from './code/ended-kernels.ts';
import { actionChanges, answersOf } from './inbox/action-changes.ts';
import type { RunStates } from './run-support/run-summaries.ts';

interface Sources {
  catalog: Pick<Catalog, 'sessions'>;
  logs: TurnLogReader;
  runStates: RunStates;
}

/** Reads of logs what the `LogReader`s of the catalog store. */
export function openLogReading({ catalog, logs, runStates }: Sources): LogReading {
  return {
    ofStart: async (start) => ({ firstMessage: await firstMessageOf(start, logs), answers: answersOf(start) }),
    ofEntries: async ({ turn, entries, isLast }) => {
      const changes = await actionChanges(entries, { catalog, logs, sessionId: turn.session_id });
      const last = entries.at(-1);
      const read = { changes, endedAgents: endedAgents(entries) };
      if (!last) return read;
      // It reads the log from its start: once, for the last entries.
      const run = isLast ? await runStates.after(turn, last.ordinal) : undefined;
      return { ...read, answer: await answerOf(last, turn.id, logs), ...run };
    },
  };
}
