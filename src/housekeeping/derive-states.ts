import type { DerivedRows } from '../catalog/underived.ts';
import { stateAfter } from '../core/session-state.ts';
import { EncryptionKeyMissing } from '../encryption/cipher.ts';
import { firstMessageText } from '../features/agent-sessions/session-texts.ts';
import { unlessUnreadable } from '../engine/turn-log-reader.ts';
import type { Housekeeping } from './housekeeping.ts';

type Deriving = Pick<Housekeeping, 'catalog' | 'logs' | 'runStates' | 'log'>;

const TURN_BATCH_SIZE = 500;
const SESSION_BATCH_SIZE = 50;

/**
 * Derives the rows that another version has not derived: after an upgrade, and while processes of two versions run.
 * Until then such a session is listed as idle, and lists of the Sessions API by state do not have it. A session whose
 * key is missing is left to a later pass.
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
  if (!last) return {};
  const unless = <T>(reading: Promise<T>, turnId: string) => unlessUnreadable(reading, { turnId, log });
  const endsOf = (turnId: string) => unless(logs.firstAndLast(turnId), turnId);
  try {
    const run = await runStates.after(last, last.archived_through);
    const ends = await endsOf(last.id);
    const [first] = await catalog.turns.after(sessionId, 0, 1);
    const beginning = !first || first.id === last.id ? ends : await endsOf(first.id);
    const texts = beginning && { firstMessage: firstMessageText(beginning.created.input) };
    if (last.archived === 0) {
      const state = (await unless(logs.currentRun(last.id), last.id))?.state;
      // A turn that has ended meanwhile is about to be archived.
      const open = state && state !== 'ended' && { open: { turnId: last.id, state } };
      return { ...open, ...(!run && texts && { texts }) };
    }
    const done = ends?.done;
    const output = done?.end.status === 'done' ? done.end.output : null;
    return {
      // A turn that cannot be read has ended nevertheless.
      last: {
        turnId: last.id,
        leaves: run?.leaves ?? (done ? stateAfter(done) : 'error'),
        at: done?.at ?? last.created_at,
      },
      ...(run
        ? { runSummary: run.runSummary }
        : { texts: { ...texts, lastAnswer: output ? output.content || output.refusal : '' } }),
    };
  } catch (error) {
    if (error instanceof EncryptionKeyMissing) return undefined;
    throw error;
  }
}
