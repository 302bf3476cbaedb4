import type { LogRecord } from '../../src/core/records/log.ts';
import type { ToolDecided } from '../../src/core/records/pending.ts';
import { callKey, type CallKey } from '../../src/core/tool-records.ts';

/** The calls that wait for an answer after these records of a turn, by their keys: a fold that does not use `Turn`. */
export function askedCalls(records: Iterable<LogRecord>): Map<string, CallKey> {
  const asked = new Map<string, CallKey>();
  for (const record of records) {
    if (record.kind === 'tool.approval_required' || record.kind === 'tool.response_required') {
      for (const { threadId, toolCallId } of record.calls) {
        asked.set(callKey({ threadId, toolCallId }), { threadId, toolCallId });
      }
    } else if (record.kind === 'tool.response' || (record.kind === 'tool.decided' && isFinal(record))) {
      asked.delete(callKey(record));
    }
  }
  return asked;
}

function isFinal({ decision, remaining }: ToolDecided): boolean {
  return decision === 'allow' ? remaining === 0 : decision !== 'escalated';
}
