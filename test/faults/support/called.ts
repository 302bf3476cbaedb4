import type { Log } from './check.ts';

/** A tool call of a message. */
export interface Called {
  id: string;
  /** The operation id, by which its tool identifies it. */
  operation: string;
  server: string | undefined;
  tool: string;
  arguments: string;
}

/** The tool calls of turns in the log. */
export function callsOf(turns: Log[]): Called[] {
  return turns.flatMap(({ turn, events }) =>
    events
      .flatMap((event) =>
        event.type === 'model.message' ? event.tool_calls.map((call) => ({ ...call, thread: event.thread_id })) : [],
      )
      .map(({ id, thread, tool_info: info, function: { arguments: args } }) => ({
        id,
        operation: thread === 'main' ? `${turn.id}/${id}` : `${turn.id}/${thread}/${id}`,
        server: info.type === 'mcp' ? info.server_name : undefined,
        tool: info.name,
        arguments: args,
      })),
  );
}

/** The call of an operation id, which is `<turn>/<call>`, or `<turn>/<thread>/<call>` for a sub-agent. */
export function callOf(operation: string): string {
  return operation.slice(operation.lastIndexOf('/') + 1);
}
