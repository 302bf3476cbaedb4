import type { UnsequencedRecord } from './records/log.ts';
import type { ContextCompacted } from './records/threads.ts';

/** What a thread's compactions have replaced: everything before an index of its records. */
export interface Compacted {
  /** The records before it are not part of the conversation. */
  from: number;
  /** The results of calls before it are cleared. */
  cleared: number;
  /** The text that replaces the records before `from`. */
  summary: string | undefined;
  /** The index of the last compaction; -1 if there was none. */
  last: number;
}

/** `records` may begin with the turn of the last summary: see `hasSummary`. */
export function compactedBy(records: UnsequencedRecord[], threadId: string): Compacted {
  const compacted: Compacted = { from: 0, cleared: 0, summary: undefined, last: -1 };
  let turn = 0;
  for (const [at, record] of records.entries()) {
    if (record.kind === 'turn.created') turn = at;
    if (!isOf(record, threadId)) continue;
    const boundary = turn + record.through;
    Object.assign(compacted, { cleared: boundary, last: at });
    if (record.summary !== undefined) Object.assign(compacted, { from: boundary, summary: record.summary });
  }
  return compacted;
}

/** Whether a turn has a summary of all turns before it for a thread, which then need not be read. */
export function hasSummary(records: UnsequencedRecord[], threadId: string): boolean {
  return records.some((record) => isOf(record, threadId) && record.summary !== undefined);
}

function isOf(record: UnsequencedRecord, threadId: string): record is Omit<ContextCompacted, 'id'> {
  return record.kind === 'context.compacted' && record.threadId === threadId;
}
