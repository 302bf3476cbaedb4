import type { CallModelResult } from '../core/history.ts';
import type { ModelCall } from '../core/model-call.ts';
import { isMisfit, type ModelMessage, type NewRecord, type ThreadDone } from '../core/records.ts';
import { endOfThread, failureAnswer } from '../core/sub-agents.ts';
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

/** The records with which a sub-agent ends after the records of its message; none if it has to go on. */
export function endOfSubAgent(call: Call, records: NewRecord[], outcome: Outcome): NewRecord[] {
  const { subAgent } = call;
  const message = records.find((record) => record.kind === 'model.message');
  const end = message && endOf(call, message, outcome);
  if (!subAgent || !end) return [];
  const text = end.status === 'done' ? message.content || message.refusal || NO_ANSWER : failureAnswer(end.message);
  const answer = truncateMiddle(text, MAX_RESULT_BYTES, (omitted) => `[${omitted} characters left out]`);
  const isCancelled = outcome.status === 'cancelled';
  return endOfThread(subAgent, { at: new Date().toISOString(), end, answer, isCancelled });
}

function endOf(call: Call, message: ModelMessage, outcome: Outcome): ThreadDone['end'] | undefined {
  const { toolCalls, finishReason } = message;
  if (outcome.status === 'error') return error(outcome.message);
  if (outcome.status === 'cancelled') return error('it was cancelled');
  if (finishReason === 'length') return error('its model stopped at its limit of output tokens');
  if ((toolCalls.length === 0 || call.isForced) && !isMisfit(message)) return { status: 'done' };
  if (refusalOf(call) === undefined) return undefined;
  return error(`it reached its limit of ${call.subAgent?.iterations} model calls`);
}

function error(message: string): Extract<ThreadDone['end'], { status: 'error' }> {
  return { status: 'error', message };
}
