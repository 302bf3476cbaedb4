import { isDeepStrictEqual } from 'node:util';
import type { Caller } from '../../core/subject.ts';
import type { GivenCall, GivenConversation, GivenResult } from '../../core/given-conversation.ts';
import { ownRun, type FoundRun } from '../../features/run-support/runs.ts';
import { unlessNotFound } from '../../engine/turn-log-reader.ts';
import { ApiError } from '../http/errors.ts';
import { RUN_ERRORS } from './errors.ts';
import type { NewRun } from './create-run.ts';
import { followRun, type FollowServices } from './follow-run.ts';
import { argumentsOf } from './output-parts.ts';
import { readResultContent } from './result-content.ts';
import type { ModelPart, RunItem, RunToolItem } from './wire/run.ts';

/** `item_<ULID of the run>_<index of the item>`. */
const ITEM_ID = /^item_([0-9a-z]{26})_(0|[1-9]\d{0,5})$/;

interface BroughtConversation {
  caller: Caller;
  agent: Pick<NewRun['agent'], 'name' | 'isRegistered'>;
  conversation: GivenConversation;
  /** The id with which the client has sent the last message. */
  itemId: string | undefined;
}

/**
 * The conversation, with results and rights from an earlier run for the calls of its last message without a result.
 * `itemId` leads to that run; it has no effect if it names no item of the caller. At most one run is read.
 *
 * - Calls that were begun there have the results that they had there, and are not executed again.
 * - Calls are executed with the rights of a registered agent only if that agent has made them. A client writes the
 *   items that it sends, so it could otherwise call any tool in the name of the agent, without the agent's model.
 * @throws ApiError `run_in_progress`
 */
export async function withKnownCalls(
  services: FollowServices,
  { caller, agent, conversation, itemId }: BroughtConversation,
): Promise<GivenConversation> {
  const { last } = conversation;
  if (!last || last.toolCalls.every(({ result }) => result)) return conversation;
  const message = agent.isRegistered ? { ...last, draftRoles: caller.roles } : last;
  const unknown = { ...conversation, last: message };
  const [, ulid, index] = ITEM_ID.exec(itemId ?? '') ?? [];
  if (ulid === undefined) return unknown;
  const runId = `run_${ulid}`;
  const run = await ownRun(services.catalog, runId, caller);
  const output = run && (await unlessNotFound(followRun(services, run, { waitMs: 0 })))?.output;
  const [item, ...following] = output?.items.slice(Number(index)) ?? [];
  if (!output || item?.type !== 'model' || item.id !== itemId) return unknown;
  if (output.isOpen) {
    const problem = `the input contains calls of ${runId}, which has not ended: wait for it, resume it, or cancel it`;
    throw new ApiError(RUN_ERRORS.run_in_progress, problem);
  }
  const results = resultsOf(following);
  const isOfAgent = isRunOf(run, agent);
  const toolCalls = last.toolCalls.map((call): GivenCall => {
    if (call.result || !item.content.some((part) => isSameCall(part, call))) return call;
    const known = results.get(call.id);
    return { ...call, ...(known && { result: reused(known) }), ...(isOfAgent && { isMade: true }) };
  });
  return { ...conversation, last: { ...message, toolCalls } };
}

/** Whether a run used the agent as it is registered: a client may give its name to another agent, or change it. */
function isRunOf({ session }: FoundRun, { name, isRegistered }: BroughtConversation['agent']): boolean {
  return isRegistered && session.agent_name === name && session.draft_roles === null;
}

/** The results of the calls of a message, by their ids; `following` are the items after it. */
function resultsOf(following: RunItem[]): Map<string, RunToolItem> {
  const results = new Map<string, RunToolItem>();
  for (const item of following) {
    if (item.type === 'model') break;
    // A call that was cancelled, or could not be executed, has not begun.
    if (item.status !== 'cancelled' && item.operation_id !== undefined) results.set(item.tool_call_id, item);
  }
  return results;
}

function isSameCall(part: ModelPart, { id, name, arguments: text }: GivenCall): boolean {
  if (!('tool_name' in part) || part.tool_call_id !== id || part.tool_name !== name) return false;
  return isDeepStrictEqual({ args: part.args, raw: part.raw_args }, { raw: undefined, ...argumentsOf(text) });
}

function reused({ outcome, output }: RunToolItem): GivenResult {
  return { outcome, ...readResultContent(output), isReused: true };
}
