import type { LogEntry, LogRecord } from './records.ts';

/**
 * The ordinals of the entries after which the state of a session may be another one: its turn has begun, waits, works
 * again or has ended. What one task of a workflow records is one change, whose mark is on the last of its entries.
 */
export function stateMarks(entries: readonly LogEntry[]): number[] {
  const marked = entries.filter(({ record }) => mayChangeState(record));
  return marked.filter(({ record }, i) => !areOfOneTask(record, marked[i + 1]?.record)).map(({ ordinal }) => ordinal);
}

/** The records of a task have its time; commands that arrived during the step before it have earlier ones. */
function areOfOneTask(record: LogRecord, next: LogRecord | undefined): boolean {
  return next !== undefined && next.at <= record.at && record.kind !== 'turn.created' && next.kind !== 'turn.done';
}

function mayChangeState(record: LogRecord): boolean {
  switch (record.kind) {
    case 'turn.created':
    case 'tool.response_required':
    case 'turn.paused':
    case 'turn.resumed':
    case 'turn.done':
      return true;
    case 'tool.response':
      // The call may have waited for a client. No other response ends a wait.
      return record.by !== undefined || record.outcome === 'expired' || record.outcome === 'cancelled';
    default:
      return false;
  }
}
