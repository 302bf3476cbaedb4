import { randomUUID } from 'node:crypto';
import { endOfSubAgent, endWith, lastSaid } from '../src/agents/end-sub-agent.ts';
import { offloadResult } from '../src/blobs/offload.ts';
import type { CallModelResult } from '../src/core/history.ts';
import type { ModelCall } from '../src/core/model-call.ts';
import type { NewRecord, UnsequencedRecord } from '../src/core/records/log.ts';
import type { ModelMessage } from '../src/core/records/message.ts';
import type { ThreadEnding } from '../src/core/records/threads.ts';
import { storeWhileUnavailable } from '../src/engine/retry.ts';
import { endedAgent } from '../src/features/code/ended-kernels.ts';
import type { Dependencies } from './dependencies.ts';

type Sources = Pick<Dependencies, 'blobs' | 'catalog' | 'conversations'>;

/** Ends a thread with its last message: see `lastSaid`. No model is called. */
export async function endThread(
  call: ModelCall,
  { ends, conversation, signal }: { ends: ThreadEnding; conversation: UnsequencedRecord[]; signal: AbortSignal },
  sources: Sources,
): Promise<CallModelResult> {
  const { turnId, sessionId, threadId, subAgent } = call;
  const last = lastSaid(conversation, threadId);
  if (!last) throw new Error(`the thread ${threadId} has said nothing`);
  const records = subAgent ? endWith(last, { ends, subAgent }) : [];
  const end = { records, ...(!subAgent && { output: last }) };
  const { blobs, conversations } = sources;
  const stored = await storeWhileUnavailable(() => offloadResult(end, { blobs, sessionId }), signal);
  await endKernelWith(records, call, sources);
  const stamp = randomUUID();
  conversations.remember({ turnId, stamp }, records);
  return { ...stored, stamp, outcome: { status: 'ended' } };
}

interface EndedCall {
  /** The records of the message. */
  response: NewRecord[];
  outcome: CallModelResult['outcome'];
  conversation: () => Promise<UnsequencedRecord[]>;
}

/** The records with which a sub-agent ends after a message; none if it continues. */
export async function endAfter(call: ModelCall, ended: EndedCall, sources: Sources): Promise<NewRecord[]> {
  const { response, outcome, conversation } = ended;
  const message = response.find((record) => record.kind === 'model.message');
  const last = call.subAgent && isSilent(message) ? lastSaid(await conversation(), call.threadId) : undefined;
  const records = endOfSubAgent(call, response, outcome, last);
  await endKernelWith(records, call, sources);
  return records;
}

function isSilent(message: ModelMessage | undefined): boolean {
  return message !== undefined && message.content + message.refusal === '' && message.finishReason === 'stop';
}

/** Frees the memory of a sub-agent's kernel at once: `endedKernelsReader` does so at the end of the turn anyway. */
async function endKernelWith(
  records: NewRecord[],
  { sessionId, subAgent }: Pick<ModelCall, 'sessionId' | 'subAgent'>,
  { catalog }: Pick<Sources, 'catalog'>,
): Promise<void> {
  const threads = records.flatMap((record) => endedAgent(record) ?? []);
  if (threads.length === 0 || subAgent?.maxTasks === undefined) return;
  await catalog.sandboxes.endKernels(sessionId, threads).catch(() => undefined);
}
