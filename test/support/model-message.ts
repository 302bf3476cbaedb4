import type { ToolRoute } from '../../src/core/records/calls.ts';
import type { ModelMessage } from '../../src/core/records/message.ts';

const AT = '2026-01-01T00:00:00.000Z';

/** A message of the root agent, complete and empty but for `fields`. */
export function modelMessage(fields: Partial<ModelMessage> = {}): ModelMessage {
  return {
    kind: 'model.message',
    id: 'msg_1',
    at: AT,
    threadId: 'main',
    content: '',
    refusal: '',
    reasoning: '',
    toolCalls: [],
    finishReason: fields.toolCalls ? 'tool_calls' : 'stop',
    ...fields,
  };
}

/** A message with a call for each route; the first calls `call_0`, and so on. */
export function messageWith(...routes: ToolRoute[]): ModelMessage {
  return modelMessage({
    toolCalls: routes.map((route, i) => ({
      id: `call_${i}`,
      name: 'look',
      arguments: '{}',
      info: { type: 'mcp', serverId: 's', serverName: 's', name: 'look' },
      route,
    })),
  });
}
