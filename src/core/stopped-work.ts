import { cutPoint } from './text.ts';
import type { ToolCall } from './records/calls.ts';
import type { UnsequencedRecord } from './records/log.ts';
import type { ToolOutcome } from './records/results.ts';
import { callKey } from './tool-records.ts';

/** The text for the model after a message of its own that was cut off. */
export const CUT_OFF = '[Your message above was stopped before it was complete.]';

/** How many calls of a sub-agent are named, and the bytes of the arguments of each. */
const MAX_NAMED = 20;
const MAX_ARGUMENT_BYTES = 200;

/** How a call that has begun is described; the others had no effect. */
const BEGUN: Partial<Record<ToolOutcome, string>> = {
  succeeded: 'done',
  failed: 'failed',
  unknown_outcome: 'outcome unknown, it may or may not have taken effect',
};

/**
 * The calls that a sub-agent and its own sub-agents have begun, as a text for the model of its parent: a stopped
 * sub-agent has no result that would mention them. Undefined if there are none.
 */
export function begunBy(threadId: string, records: UnsequencedRecord[]): string | undefined {
  const threads = new Set([threadId]);
  const calls = new Map<string, ToolCall>();
  const begun: string[] = [];
  for (const record of records) {
    if (record.kind === 'thread.created' && threads.has(record.thread.parent.threadId)) {
      threads.add(record.thread.threadId);
    } else if (record.kind === 'model.message' && threads.has(record.threadId)) {
      for (const call of record.toolCalls) {
        if (call.route.to === 'server') calls.set(callKey({ ...record, toolCallId: call.id }), call);
      }
    } else if (record.kind === 'tool.response') {
      const call = calls.get(callKey(record));
      const how = BEGUN[record.outcome];
      if (call && how) begun.push(`- ${call.name}(${shortened(call.arguments)}): ${how}`);
    }
  }
  if (begun.length === 0) return undefined;
  const more = begun.length > MAX_NAMED ? [`- and ${begun.length - MAX_NAMED} more`] : [];
  return ['It had called these tools:', ...begun.slice(0, MAX_NAMED), ...more].join('\n');
}

function shortened(text: string): string {
  const head = text.slice(0, cutPoint(text, 0, MAX_ARGUMENT_BYTES));
  return head === text ? text : `${head}…`;
}
