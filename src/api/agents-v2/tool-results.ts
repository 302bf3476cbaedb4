import { isDeepStrictEqual } from 'node:util';
import type { Answer } from '../../core/turn-command.ts';
import type { ToolCallRequest } from './wire/events.ts';
import type { ToolRequest, ToolResultsBody } from './wire/messages.ts';

type Result = Exclude<ToolResultsBody, { type: 'batch' }>;

/**
 * The results as answers to the calls that wait, by their keys. Those of other calls are left out: a client may send a
 * result twice. A result without the id of its call is that of a call with the same tool and arguments.
 */
export function resultsFor(body: ToolResultsBody, waiting: ReadonlyMap<string, ToolCallRequest>): Answer[] {
  const results = 'results' in body ? body.results : [body];
  const open = new Map(waiting);
  return results.flatMap((result): Answer[] => {
    const request = result.tool_req;
    const found = request && [...open].find(([, call]) => isCall(call, request));
    if (!found) return [];
    const [key] = found;
    open.delete(key);
    const [threadId = '', toolCallId = ''] = key.split(' ');
    return [{ type: 'user.tool_response', threadId, toolCallId, content: contentOf(result) }];
  });
}

function isCall(call: ToolCallRequest, { id, tool_name: name, args }: ToolRequest): boolean {
  if (id !== null && id !== undefined) return call.id === id;
  return call.tool_name === name && isDeepStrictEqual(call.args, args ?? {});
}

/** The text that the model reads. */
function contentOf(result: Result): string {
  if ('error' in result) return `Error: ${result.error}`;
  return typeof result.result === 'string' ? result.result : JSON.stringify(result.result ?? null);
}
