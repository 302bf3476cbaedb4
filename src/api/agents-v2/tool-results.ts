import { isDeepStrictEqual } from 'node:util';
import type { Answer } from '../../core/turn-command.ts';
import type { WaitingCall } from '../../core/turn-view.ts';
import { waitingRequest } from './turn-events.ts';
import type { ToolRequest, ToolResultsBody } from './wire/messages.ts';

type Result = Exclude<ToolResultsBody, { type: 'batch' }>;

/**
 * The results as answers to the calls that wait for the client. Results of other calls are left out: a client may send
 * a result twice. A result without the id of a call belongs to a call with the same tool and arguments.
 */
export function resultsFor(body: ToolResultsBody, waiting: readonly WaitingCall[]): Answer[] {
  const results = 'results' in body ? body.results : [body];
  const open = new Set(waiting);
  return results.flatMap((result): Answer[] => {
    const request = result.tool_req;
    const found = request && [...open].find((waits) => isCall(waits, request));
    if (!found) return [];
    open.delete(found);
    const { threadId, toolCallId } = found.pending;
    return [{ type: 'user.tool_response', threadId, toolCallId, content: contentOf(result) }];
  });
}

function isCall(waiting: WaitingCall, { id, tool_name: name, args }: ToolRequest): boolean {
  const { call } = waiting;
  if (id !== null && id !== undefined) return call.id === id;
  return call.name === name && isDeepStrictEqual(waitingRequest(waiting).args, args ?? {});
}

/** The text that the model reads. */
function contentOf(result: Result): string {
  if ('error' in result) return `Error: ${result.error}`;
  return typeof result.result === 'string' ? result.result : JSON.stringify(result.result ?? null);
}
