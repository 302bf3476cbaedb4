import { context, propagation } from '@opentelemetry/api';
import { firstCallOf } from '../../core/turn.ts';
import type { UnsequencedRecord } from '../../core/records/log.ts';
import { ROOT_THREAD } from '../../core/records/threads.ts';
import { endStatus } from '../../core/records/turn.ts';
import { startable } from '../../core/sub-agents.ts';
import { transcript } from '../../core/transcript.ts';
import { turnContext } from '../../core/trace-context.ts';
import type { Conversations } from '../../engine/conversations.ts';
import { sessionLimitOf, type SharedBudgets } from '../budgets/shared-budgets.ts';
import type { SpeculativeCall } from '../../engine/speculation.ts';
import type { LiveBus } from '../../live/bus.ts';
import { answersAtLimit, hasServers, iterationLimit } from '../../spec/agent-spec.ts';
import { logContext, withLogContext } from '../../telemetry/log-context.ts';
import { MessageAssembler } from '../../agents/message-assembler.ts';
import { extractedTexts, unreadFiles } from '../files/read-files.ts';
import { prepareModelCall, type ModelCallSources } from '../../agents/prepare-model-call.ts';
import { readAhead } from './read-ahead.ts';
import type { StartSpeculativeCall } from './speculative-calls.ts';

interface ModelCallDependencies extends ModelCallSources {
  conversations: Pick<Conversations, 'beginning'>;
  bus: LiveBus;
  budgets: Pick<SharedBudgets, 'isReached'>;
}

/** Makes the function that starts a turn's first model call before the turn starts, with the request of `callModel`. */
export function createBeginModelCall(dependencies: ModelCallDependencies): StartSpeculativeCall {
  return (start, signal) =>
    withTurnContext(start, async () => {
      const records = await dependencies.conversations.beginning(start, signal);
      if (hasPendingCalls(records) || hasUnreadFiles(records)) return undefined;
      const call = { ...start, threadId: ROOT_THREAD, mayStart: startable(0, 0) };
      const prepared = await prepareModelCall(dependencies, call, Promise.resolve(records), signal);
      const { spec, provider, request, toolset, compaction } = prepared;
      if (await dependencies.budgets.isReached({ ...start, sessionLimit: sessionLimitOf(spec) })) return undefined;
      // The turn may have to request a sign-in or to compact its conversation first.
      if (compaction || toolset.unavailable.some(({ signIn }) => signIn)) return undefined;
      // The turn forces its first model call.
      if (answersAtLimit(spec) && iterationLimit(spec) === 1) return undefined;
      const plan = firstCallOf({ ...start, hasServers: hasServers(spec) });
      const message = new MessageAssembler({
        turnId: start.turnId,
        plan,
        attempt: 0,
        prepared,
        bus: dependencies.bus,
      });
      return { message, parts: readAhead(provider.stream(request, signal)) };
    });
}

/** Runs `work` as a part of the turn's span, with the turn's ids in its log lines. */
function withTurnContext<T>({ turnId, sessionId, trace }: SpeculativeCall, work: () => T): T {
  const span = trace && turnContext(trace, turnId);
  const spanContext = span ? propagation.extract(context.active(), span) : context.active();
  return context.with(spanContext, () => withLogContext({ ...logContext(), turnId, sessionId }, work));
}

/** Whether files have to be read first: only the activity does that. */
function hasUnreadFiles(records: UnsequencedRecord[]): boolean {
  return unreadFiles(transcript(records, ROOT_THREAD), extractedTexts(records)).length > 0;
}

/** Whether the previous turn ended with pending calls: the session rejects a turn that does not answer them. */
function hasPendingCalls(records: UnsequencedRecord[]): boolean {
  const previous = records.findLast(({ kind }) => kind === 'turn.done');
  return previous?.kind === 'turn.done' && endStatus(previous.end) === 'action_required';
}
