import type { ModelCall } from '../core/model-call.ts';
import type { ContextCompacted, WithoutId } from '../core/records.ts';
import { TOKEN_CHARACTERS } from '../models/input-breakdown.ts';
import type { Compaction, PreparedModelCall } from './prepare-model-call.ts';
import { summarize, type AskModel } from './summarize.ts';

/** Compacts the conversation of a thread: the record says what stands for it from now on. */
export async function compactConversation(
  { through, tokensBefore, tokensAfter, summarized, threshold, foundTools, connections }: Compaction,
  { threadId, subAgent }: Pick<ModelCall, 'threadId' | 'subAgent'>,
  { spec, request, ask }: Pick<PreparedModelCall, 'spec' | 'request'> & { ask: AskModel },
): Promise<WithoutId<ContextCompacted>> {
  const summary = summarized && (await summarize(summarized, { base: request, partTokens: threshold, ask }));
  // The clients of a registered sub-agent are those of the agent that has started it.
  const isShown = spec.config?.pause === 'wait' && subAgent?.agent === undefined;
  return {
    kind: 'context.compacted',
    at: new Date().toISOString(),
    threadId,
    through,
    ...(summary !== undefined && { summary }),
    tokensBefore,
    tokensAfter: tokensAfter + Math.ceil((summary?.length ?? 0) / TOKEN_CHARACTERS),
    ...(foundTools.length > 0 && { foundTools }),
    ...(connections.length > 0 && { connections }),
    ...(isShown && { isShown }),
  };
}
