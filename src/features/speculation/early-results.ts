import { inlineFile } from '../../blobs/store-files.ts';
import type { NewRecord } from '../../core/records/log.ts';
import type { ModelMessage } from '../../core/records/message.ts';
import type { CallOutcome, ToolResult } from '../../mcp/call-outcome.ts';
import type { AskingCall } from '../../mcp/call-rounds.ts';
import { returned, structuredFile, type UnstoredResult } from '../../tools/results.ts';

/** The result of a call that is recorded with its message; `index`: the position of the call in the message. */
export interface EarlyResult {
  index: number;
  result: Pick<UnstoredResult, 'outcome' | 'text' | 'structured' | 'connection'>;
}

/** The maximum characters of all early results of a message, so that its record stays small enough for the history. */
const MAX_LENGTH = 8 * 1024;

/** The results of calls, if all of them are short texts. */
export function shortResults(
  ended: { index: number; outcome: CallOutcome | AskingCall | undefined }[],
): EarlyResult[] | undefined {
  const results = ended.flatMap(({ index, outcome }) =>
    isShort(outcome) ? [{ index, result: returned(outcome) }] : [],
  );
  const length = results.reduce((sum, { result }) => sum + result.text.length + (result.structured?.length ?? 0), 0);
  return results.length === ended.length && length <= MAX_LENGTH ? results : undefined;
}

/** Whether an outcome is a result that consists of its text only: no files, and no found tools. */
function isShort(outcome: CallOutcome | AskingCall | undefined): outcome is ToolResult {
  if (outcome?.status !== 'result' || outcome.foundTools) return false;
  const length = outcome.content.reduce(
    (sum, block) => sum + (block.type === 'text' ? block.text.length : Infinity),
    0,
  );
  return length <= MAX_LENGTH;
}

/** The records of a model call with the early results of its message, in the order of their calls. */
export function withEarlyResults(records: NewRecord[], message: ModelMessage, results: EarlyResult[]): NewRecord[] {
  const { threadId, toolCalls } = message;
  const at = new Date().toISOString();
  const ran = new Set(results.map(({ index }) => index));
  const answered = toolCalls.map((call, index): typeof call =>
    ran.has(index) ? { ...call, route: { to: 'answered', ran: true } } : call,
  );
  const early = results.flatMap(({ index, result: { outcome, text, structured, connection } }): NewRecord[] => {
    const call = toolCalls[index];
    if (!call) return [];
    const result = {
      outcome,
      content: text,
      ...(structured !== undefined && { structuredContent: inlineFile(structuredFile(structured)) }),
      ...(connection && { connection }),
    };
    return [{ kind: 'tool.response', at, threadId, toolCallId: call.id, ...result }];
  });
  const begin = records.indexOf(message);
  const place = (record: NewRecord): number =>
    record.kind === 'tool.response' ? toolCalls.findIndex(({ id }) => id === record.toolCallId) : toolCalls.length;
  const rest = [...early, ...records.slice(begin + 1)].toSorted((a, b) => place(a) - place(b));
  return [...records.slice(0, begin), { ...message, toolCalls: answered }, ...rest];
}
