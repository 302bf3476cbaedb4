import type { Attempt } from '../src/core/attempts.ts';
import type { CallModelInput, CallToolInput } from '../src/core/history.ts';
import { newId } from '../src/engine/new-id.ts';
import type { LiveBus } from '../src/live/bus.ts';

/** Publishes to the readers of a turn that a call has failed and is repeated. */
export function announceRetry(bus: LiveBus, input: CallModelInput | CallToolInput, attempt: Attempt): void {
  const { turnId, threadId } = input;
  const call = 'messageId' in input ? { messageId: input.messageId } : { toolCallId: input.toolCallId };
  bus.announce({ id: newId('evt'), at: new Date().toISOString(), turnId, threadId, ...call, attempt });
}
