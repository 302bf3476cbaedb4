import type { GivenMessage } from '../src/core/given-conversation.ts';
import { pick } from '../src/core/pick.ts';
import type { UnsequencedRecord } from '../src/core/records/log.ts';
import type { ModelChunk } from '../src/models/provider.ts';

/** The last message of the conversation that the client has sent, unless the turn has recorded it. */
export function givenLast(records: UnsequencedRecord[]): GivenMessage | undefined {
  const created = records.find((record) => record.kind === 'turn.created');
  const isDone = records.some((record) => record.kind === 'model.message' && record.isGiven);
  return isDone ? undefined : created?.conversation?.given?.last;
}

/** The chunks of a given message, as if a model had sent it. */
export async function* chunksOf(message: GivenMessage): AsyncGenerator<ModelChunk> {
  const { toolCalls } = message;
  yield {
    ...pick(message, 'content', 'refusal', 'reasoning', 'providerFields'),
    toolCalls: toolCalls.map((call, index) => ({ index, ...pick(call, 'id', 'name', 'arguments', 'providerFields') })),
    finishReason: toolCalls.length > 0 ? 'tool_calls' : 'stop',
  };
}
