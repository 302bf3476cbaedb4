import type { Log } from './check.ts';

/** A tool call of a message. */
export interface Called {
  id: string;
  /** The operation id, by which its tool identifies it. */
  operation: string;
  server: string | undefined;
  tool: string;
  arguments: string;
  /** Its thread and its id, which code and providers number anew in each thread. */
  key: string;
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
        key: `${thread} ${id}`,
      })),
  );
}

/** The key of the call of an operation id, which is `<turn>/<call>`, or `<turn>/<thread>/<call>` in another thread than `main`. */
export function keyOf(operation: string): string {
  const [, ...place] = operation.split('/');
  return (place.length === 1 ? ['main', ...place] : place).join(' ');
}

/** The key of the call that an event or an input is about. */
export function keyIn({ thread_id: thread, tool_call_id: id }: { thread_id: string; tool_call_id: string }): string {
  return `${thread} ${id}`;
}
