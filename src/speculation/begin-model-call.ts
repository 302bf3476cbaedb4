import { context, propagation } from '@opentelemetry/api';
import type { StartSpeculativeCall, SpeculativeCall } from './speculative-calls.ts';
import { endStatus, ROOT_THREAD, type UnsequencedRecord } from '../core/records.ts';
import { turnContext } from '../core/trace-context.ts';
import { withLogContext, logContext } from '../telemetry/log-context.ts';
import type { Conversations } from '../engine/conversations.ts';
import { prepareModelCall, type ModelCallSources } from '../agents/prepare-model-call.ts';

interface Dependencies extends ModelCallSources {
  conversations: Pick<Conversations, 'beginning'>;
}

/** Asks the model what `callModel` will ask it as the first thing in a turn, before the turn has begun. */
export function createBeginModelCall(dependencies: Dependencies): StartSpeculativeCall {
  return (start, signal) =>
    forTurn(start, async () => {
      const records = await dependencies.conversations.beginning(start, signal);
      if (waitsForAnswers(records)) return undefined;
      const call = { ...start, threadId: ROOT_THREAD };
      const { provider, request } = await prepareModelCall(dependencies, call, Promise.resolve(records), signal);
      return provider.stream(request, signal);
    });
}

/** What is done before the turn begins is done for the turn all the same, and a part of its span. */
function forTurn<T>({ turnId, sessionId, trace }: SpeculativeCall, work: () => T): T {
  const span = trace && turnContext(trace, turnId);
  const inside = span ? propagation.extract(context.active(), span) : context.active();
  return context.with(inside, () => withLogContext({ ...logContext(), turnId, sessionId }, work));
}

/** The turn before ended with calls to answer: the session will refuse whatever does not answer them. */
function waitsForAnswers(records: UnsequencedRecord[]): boolean {
  const previous = records.findLast(({ kind }) => kind === 'turn.done');
  return previous?.kind === 'turn.done' && endStatus(previous.end) === 'action_required';
}
