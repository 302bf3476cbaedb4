import type { Logger } from 'pino';
import type { Catalog } from '../catalog/catalog.ts';
import type { DerivedRows } from '../catalog/underived.ts';
import { stateAfter } from '../core/session-state.ts';
import { EncryptionKeyMissing } from '../encryption/cipher.ts';
import type { RunStates } from '../engine/archive-turn.ts';
import { textOf } from '../engine/turn-index.ts';
import { unlessUnreadable, type TurnLogReader } from '../engine/turn-log-reader.ts';

interface Deriving {
  catalog: Catalog;
  logs: TurnLogReader;
  runStates: RunStates;
  log: Logger;
}

const TURN_BATCH_SIZE = 500;
const SESSION_BATCH_SIZE = 50;

/**
 * Derives the rows that another version has not: after an upgrade, and while processes of two versions run. Until then
 * such a session is listed as idle, and no list by state has it. One whose key is missing is left to a later sweep.
 */
export async function deriveStates({ catalog, ...sources }: Deriving, stop: AbortSignal): Promise<void> {
  while (!stop.aborted && (await catalog.underived.deriveTurns(TURN_BATCH_SIZE)));
  for (let after = ''; ;) {
    const sessions = await catalog.underived.sessions(after, SESSION_BATCH_SIZE);
    for (const id of sessions) {
      if (stop.aborted) return;
      const rows = await rowsOf(id, { catalog, ...sources });
      if (rows) await catalog.underived.derive(id, rows);
    }
    const last = sessions.at(-1);
    if (last === undefined) return;
    after = last;
  }
}

/** Undefined if a key is missing. */
async function rowsOf(
  sessionId: string,
  { catalog, logs, runStates, log }: Deriving,
): Promise<DerivedRows | undefined> {
  const last = await catalog.turns.last(sessionId);
  if (last?.archived !== 1) return {};
  const endsOf = (turnId: string) => unlessUnreadable(logs.firstAndLast(turnId), { turnId, log });
  try {
    const ends = await endsOf(last.id);
    const done = ends?.done;
    const run = await runStates.after(last, last.archived_through);
    const [first] = await catalog.turns.after(sessionId, 0, 1);
    const beginning = !first || first.id === last.id ? ends : await endsOf(first.id);
    const output = done?.end.status === 'done' ? done.end.output : null;
    return {
      // One that cannot be read has ended nevertheless.
      last: {
        turnId: last.id,
        leaves: run?.leaves ?? (done ? stateAfter(done) : 'error'),
        at: done?.at ?? last.created_at,
      },
      ...(!run && {
        texts: {
          ...(beginning && { firstMessage: textOf(beginning.created.input) }),
          ...(output && { lastAnswer: output.content || output.refusal }),
        },
      }),
      ...(run && { runSummary: run.summary }),
    };
  } catch (error) {
    if (error instanceof EncryptionKeyMissing) return undefined;
    throw error;
  }
}
