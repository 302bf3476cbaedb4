import type { CallModelResult } from '../core/history.ts';
import type { ModelCall } from '../core/model-call.ts';
import type { NewRecord, UnsequencedRecord } from '../core/records/log.ts';
import { violatesSchema, type ModelMessage } from '../core/records/message.ts';
import type { SubAgent, ThreadDone, ThreadEnding } from '../core/records/threads.ts';
import { endOfThread, failureText } from '../core/sub-agents.ts';
import { truncateMiddle } from '../core/text.ts';
import { MAX_RESULT_BYTES } from '../tools/results.ts';

type Call = Pick<ModelCall, 'subAgent' | 'isLast' | 'isForced' | 'limit'>;
type Outcome = CallModelResult['outcome'];

const NO_ANSWER = 'The sub-agent ended without an answer.';

/** Why the calls of a message are not run: it is the last one that its agent may write. */
export function refusalOf({ subAgent, isLast, isForced, limit }: Call): string | undefined {
  if (limit) return 'This call was not executed: the turn had reached a limit, and an answer was required.';
  if (isForced) return 'This call was not executed: the user asked for an answer.';
  return subAgent && isLast ? 'This call was not executed: the sub-agent has ended.' : undefined;
}

/**
 * The records with which a sub-agent ends after the records of its message; none if it has to continue.
 * @param said from `lastSaid`, for a message without a text
 */
export function endOfSubAgent(call: Call, records: NewRecord[], outcome: Outcome, said?: ModelMessage): NewRecord[] {
  const { subAgent } = call;
  const message = records.find((record) => record.kind === 'model.message');
  const end = message && endOf(call, message, outcome);
  if (!subAgent || !end) return [];
  const answer = shortened(end.status === 'done' ? answerOf(message, said) : failureText(end.message));
  const isCancelled = outcome.status === 'cancelled';
  const output = end.status === 'done' && said && { output: said };
  return endOfThread(subAgent, { at: new Date().toISOString(), end, answer, isCancelled, ...output });
}

/** The last message of a thread that has a text; if none has one, its last message. */
export function lastSaid(records: readonly UnsequencedRecord[], threadId: string): ModelMessage | undefined {
  const messages = records
    .filter((record) => record.kind === 'model.message')
    .filter((one) => one.threadId === threadId);
  return messages.findLast((message) => textOf(message) !== undefined) ?? messages.at(-1);
}

/** The records with which a sub-agent ends with `said`, its last message, as its output. */
export function endWith(
  said: ModelMessage,
  { ends, subAgent }: { ends: ThreadEnding; subAgent: SubAgent },
): NewRecord[] {
  const answer = `${shortened(textOf(said) ?? NO_ANSWER)}\n${noteOn(ends, subAgent)}`;
  return endOfThread(subAgent, { at: new Date().toISOString(), end: { status: 'done' }, answer, output: said });
}

function noteOn(ends: ThreadEnding, { iterations }: SubAgent): string {
  return ends === 'denial'
    ? '[everturn] The sub-agent has not finished: a call of it was denied.'
    : `[everturn] The sub-agent has not finished: it reached its limit of ${iterations} model calls.`;
}

function answerOf(message: ModelMessage, said: ModelMessage | undefined): string {
  return textOf(message) ?? (said && textOf(said)) ?? NO_ANSWER;
}

function textOf({ content, refusal }: ModelMessage): string | undefined {
  return content || refusal || undefined;
}

function shortened(text: string): string {
  return truncateMiddle(text, MAX_RESULT_BYTES, (omitted) => `[${omitted} characters left out]`);
}

function endOf(call: Call, message: ModelMessage, outcome: Outcome): ThreadDone['end'] | undefined {
  const { toolCalls, finishReason } = message;
  if (outcome.status === 'error') return error(outcome.message);
  if (outcome.status === 'cancelled') return error('it was cancelled');
  if (finishReason === 'length') return error('its model stopped at its limit of output tokens');
  if ((toolCalls.length === 0 || call.isForced) && !violatesSchema(message)) return { status: 'done' };
  if (refusalOf(call) === undefined) return undefined;
  return error(`it reached its limit of ${call.subAgent?.iterations} model calls`);
}

function error(message: string): Extract<ThreadDone['end'], { status: 'error' }> {
  return { status: 'error', message };
}
