import type { Frame } from './api-client.ts';
import { say, use, type Script } from './scripted-model.ts';
import type { Chat } from './test-server.ts';

export type ToolResponse = Extract<Frame, { type: 'tool.response' }>;

/** The model calls `ipython`. */
export function cell(code: string, more: object = {}): Script {
  return use({ name: 'ipython', args: { code, ...more } });
}

/** A turn in which the model runs cells, and its events. */
export async function cellTurn(chat: Chat, codes: string[], more?: object): Promise<Frame[]> {
  chat.script(...codes.map((code) => cell(code)), say('done'));
  return chat.turn('go', more).done;
}

/** The results of a thread, of the root agent by default. */
export function responsesIn(events: Frame[], isOfThread: (threadId: string) => boolean = isRoot): ToolResponse[] {
  return events.filter((event) => event.type === 'tool.response' && isOfThread(event.thread_id)) as ToolResponse[];
}

/** The calls that a turn asks about, as they are answered. */
export function askedIn(events: Frame[]): { thread_id: string; tool_call_id: string }[] {
  return events.flatMap((event) =>
    event.type === 'tool.approval_required'
      ? event.tool_calls.map(({ id }) => ({ thread_id: event.thread_id, tool_call_id: id }))
      : [],
  );
}

/** The answers to all calls that a turn asks about. */
export function answersTo(events: Frame[], approval: object = { status: 'allow' }): object[] {
  return askedIn(events).map((call) => ({ type: 'user.tool_approval', ...call, approval }));
}

function isRoot(threadId: string): boolean {
  return threadId === 'main';
}
