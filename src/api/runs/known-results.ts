import { isDeepStrictEqual } from 'node:util';
import type { Caller } from '../../core/subject.ts';
import type { GivenCall, GivenConversation, GivenResult } from '../../core/given-conversation.ts';
import { ownRun } from '../../engine/runs.ts';
import { unlessNotFound } from '../../engine/turn-log-reader.ts';
import { ApiError } from '../http/errors.ts';
import { followRun, type FollowServices } from './follow-run.ts';
import { argumentsOf } from './output-parts.ts';
import { readResultContent } from './result-content.ts';
import type { ModelPart, RunItem, ToolItem } from './wire/run.ts';

/** `item_<ULID of the run>_<index of the item>`. */
const ITEM_ID = /^item_([0-9a-z]{26})_(0|[1-9]\d{0,5})$/;

/**
 * The conversation, with the results that another run of the caller has for calls of its last message: they were begun
 * there, and are not run again. `itemId` is the id with which the client has sent that message; an id that names no item
 * of the caller has no effect. At most one run is read.
 * @throws ApiError `run_in_progress`
 */
export async function withKnownResults(
  services: FollowServices,
  { caller, conversation, itemId }: { caller: Caller; conversation: GivenConversation; itemId: string | undefined },
): Promise<GivenConversation> {
  const { last } = conversation;
  const [, ulid, index] = ITEM_ID.exec(itemId ?? '') ?? [];
  if (!last || ulid === undefined || last.toolCalls.every(({ result }) => result)) return conversation;
  const runId = `run_${ulid}`;
  const run = await ownRun(services.catalog, runId, caller);
  const output = run && (await unlessNotFound(followRun(services, run, { waitMs: 0 })))?.output;
  const [item, ...following] = output?.items.slice(Number(index)) ?? [];
  if (!output || item?.type !== 'model' || item.id !== itemId) return conversation;
  if (output.isOpen) {
    const message = `the input contains calls of ${runId}, which has not ended: wait for it, resume it, or cancel it`;
    throw new ApiError('run_in_progress', message);
  }
  const results = resultsOf(following);
  const toolCalls = last.toolCalls.map((call): GivenCall => {
    const known = item.content.some((part) => isSameCall(part, call)) ? results.get(call.id) : undefined;
    return known && !call.result ? { ...call, result: reused(known) } : call;
  });
  return { ...conversation, last: { ...last, toolCalls } };
}

/** The results of the calls of a message, by their ids; `following` are the items after it. */
function resultsOf(following: RunItem[]): Map<string, ToolItem> {
  const results = new Map<string, ToolItem>();
  for (const item of following) {
    if (item.type === 'model') break;
    // A call that was cancelled or that could not run has begun nothing.
    if (item.status !== 'cancelled' && item.operation_id !== undefined) results.set(item.tool_call_id, item);
  }
  return results;
}

function isSameCall(part: ModelPart, { id, name, arguments: text }: GivenCall): boolean {
  if (!('tool_name' in part) || part.tool_call_id !== id || part.tool_name !== name) return false;
  return isDeepStrictEqual({ args: part.args, raw: part.raw_args }, { raw: undefined, ...argumentsOf(text) });
}

function reused({ outcome, output }: ToolItem): GivenResult {
  return { outcome, ...readResultContent(output), isReused: true };
}
