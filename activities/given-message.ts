import type { GivenMessage } from '../src/core/given-conversation.ts';
import type { UnsequencedRecord } from '../src/core/records/log.ts';
import type { ModelChunk } from '../src/models/provider.ts';

/** The message with which the conversation of the turn's client ends, unless the turn has it already. */
export function givenLast(records: UnsequencedRecord[]): GivenMessage | undefined {
  const created = records.find((record) => record.kind === 'turn.created');
  const isDone = records.some((record) => record.kind === 'model.message' && record.isGiven);
  return isDone ? undefined : created?.conversation?.given?.last;
}

/** A given message as if a model had answered it. */
export async function* chunksOf(message: GivenMessage): AsyncGenerator<ModelChunk> {
  const { toolCalls, draftRoles: _, sections: __, images: ___, provider: ____, model: _____, ...text } = message;
  yield {
    ...text,
    toolCalls: toolCalls.map((given, index) => {
      const { result: ______, isMade: _______, ...call } = given;
      return { index, ...call };
    }),
    finishReason: toolCalls.length > 0 ? 'tool_calls' : 'stop',
  };
}
