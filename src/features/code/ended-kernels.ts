import { randomUUID } from 'node:crypto';
import type { Transaction } from 'kysely';
import type { LogReader } from '../../catalog/log-reader.ts';
import type { Tables } from '../../catalog/schema.ts';
import type { LogEntry, LogRecord, NewRecord } from '../../core/records/log.ts';
import { snapshotsOf } from './kernel-snapshot.ts';
import { kernelsOf, resetsOf } from './kernel-state.ts';
import type { SandboxRow } from './sandbox-rows.ts';

declare module '../../catalog/log-reader.ts' {
  interface EntriesReading {
    /** The ended sub-agents, each with the ordinal of the record of its end. */
    endedAgents?: { ordinal: number; threadId: string }[];
  }
}

/** The thread of the sub-agent that has ended with a record; undefined for other records. */
export function endedAgent(record: LogRecord | NewRecord): string | undefined {
  return record.kind === 'tool.response' ? record.fromThread : undefined;
}

/** The data for `endedKernelsReader` from log entries. */
export function endedAgents(entries: LogEntry[]): { ordinal: number; threadId: string }[] {
  return entries.flatMap(({ ordinal, record }) => {
    const threadId = endedAgent(record);
    return threadId === undefined ? [] : { ordinal, threadId };
  });
}

/** Ends the kernels of sub-agents with their threads, however these end. */
export const endedKernelsReader: LogReader = {
  entriesAdded: async (db, turn, { endedAgents: ended = [] }) => {
    const added = ended.filter(({ ordinal }) => ordinal > turn.archived_through);
    if (added.length === 0) return;
    const threads = added.map(({ threadId }) => threadId);
    await endKernels(db, turn.session_id, threads);
  },
};

/** Makes the host end the kernels of ended threads within seconds, also while calls run in the sandbox. */
export async function endKernels(db: Transaction<Tables>, sessionId: string, threads: string[]): Promise<void> {
  const row = await db
    .updateTable('sandboxes')
    // Locks the row, since clients and the host change the resets, too.
    .set((eb) => ({ resets: eb.ref('resets') }))
    .where('session_id', '=', sessionId)
    .returningAll()
    .executeTakeFirst();
  const resets = row && resetsWith(row, threads);
  if (resets === undefined) return;
  await db.updateTable('sandboxes').set({ resets }).where('session_id', '=', sessionId).execute();
}

/** The resets of a row, plus resets for the kernels of ended threads; undefined if these threads have no kernels. */
function resetsWith(row: SandboxRow, threads: string[]): string | undefined {
  try {
    // While a call runs, a kernel that it has just started may not be in the row yet.
    const ended = row.calls > 0 ? threads : threads.filter((threadId) => hasKernel(row, threadId));
    if (ended.length === 0) return undefined;
    const others = resetsOf(row).filter(({ threadId }) => !ended.includes(threadId));
    const added = ended.map((threadId) => ({ threadId, id: randomUUID(), stops: true, ends: true }));
    return JSON.stringify([...others, ...added]);
  } catch {
    // A newer host has written a format that this version cannot read. These kernels end by their idle time.
    return undefined;
  }
}

/** Whether a thread has a kernel, or stored variables of one. */
export function hasKernel(row: Pick<SandboxRow, 'kernels' | 'snapshots'>, threadId: string): boolean {
  return [...kernelsOf(row), ...snapshotsOf(row)].some((kernel) => kernel.threadId === threadId);
}
