import { LRUCache } from 'lru-cache';
import type { BlobStore } from '../../../blobs/blob-store.ts';
import type { CallToolInput } from '../../../core/history.ts';
import type { ToolCall } from '../../../core/records/calls.ts';
import type { ModelMessage } from '../../../core/records/message.ts';
import { toolLanes } from '../../../core/tool-lanes.ts';
import { operationIdOf, outcomeText } from '../../../core/tool-records.ts';
import { retryWhileUnavailable } from '../../../engine/retry.ts';
import { KeyedSemaphore } from '../../../lib/keyed-semaphore.ts';
import type { AgentSpec } from '../../../spec/agent-spec.ts';
import type { McpTools } from '../../../tools/mcp-tools.ts';
import { CANCELLED, hasResponded, resultOf, storeResponse, type UnstoredResult } from '../../../tools/results.ts';
import type { CodeMessage } from './code-message.ts';

/** How long the calls of a tool are left to the turn, after the host could not complete one of them. */
const LEFT_MS = 60_000;

const MAX_LEFT = 10_000;

/** Calls of stateful servers are left to workers, whose connections have state that a connection of the host lacks. */
const ON_NO_CONNECTION: ReadonlySet<string> = new Set(['']);

interface DirectCallsOptions {
  mcpTools: Pick<McpTools, 'run'>;
  blobs: BlobStore;
  /** The time-out of a tool call. */
  toolTimeoutMs: number;
}

interface CellContext extends Pick<CallToolInput, 'turnId' | 'isRun' | 'sessionId' | 'owner'> {
  spec: AgentSpec;
  /** Aborted when the cell has to end at once. */
  stop: AbortSignal;
  /** Aborted when the piece of the cell, or the cell, has to end. */
  ending: AbortSignal;
}

/**
 * Calls of code that the host runs itself, without ending the piece of the cell: such a call costs a fraction of two
 * activities. Only for calls that need no decision, and whose tools may run again, since the calls of a lost host are
 * not in the log. A call that the host cannot complete with one request is left to the turn, which runs it again.
 */
export class DirectCalls {
  readonly #options: DirectCallsOptions;
  /** The tools of which a call was left to the turn. */
  readonly #left = new LRUCache<string, true>({ max: MAX_LEFT, ttl: LEFT_MS });

  constructor(options: DirectCallsOptions) {
    this.#options = options;
  }

  /** Whether the host may run all calls of a message. */
  takes({ message: { toolCalls } }: Pick<CodeMessage, 'message'>): boolean {
    return toolCalls.every((call) => call.route.to === 'answered' || (isDirect(call) && !this.#left.has(toolOf(call))));
  }

  /** Runs the calls of a message, and adds their results. A call without a result is left to the turn. */
  async run({ message, results, ...asked }: CodeMessage, place: CellContext): Promise<CodeMessage> {
    const lanes = new KeyedSemaphore(toolLanes({ isSubAgent: false, inSequence: place.spec.callsInSequence }));
    const refused = new Map(results.map((result) => [result.toolCallId, result]));
    const ended = await Promise.all(
      message.toolCalls.map(async (call): Promise<{ call: ToolCall; result?: CodeMessage['results'][number] }> => {
        const { route } = call;
        const result = refused.get(call.id);
        if (result || route.to !== 'server') return { call, ...(result && { result }) };
        const end = await lanes.run('', () => this.#run(call, message, place));
        if ('result' in end) return { call: { ...call, route: { to: 'answered', ran: true } }, result: end.result };
        this.#left.set(toolOf(call), true);
        return { call: end.hasBegun ? { ...call, route: { ...route, hasBegun: true } } : call };
      }),
    );
    return {
      ...asked,
      message: { ...message, toolCalls: ended.map(({ call }) => call) },
      results: ended.flatMap(({ result }) => result ?? []),
    };
  }

  async #run(
    call: ToolCall,
    { threadId }: Pick<ModelMessage, 'threadId'>,
    place: CellContext,
  ): Promise<{ result: CodeMessage['results'][number] } | { hasBegun: boolean }> {
    const { blobs } = this.#options;
    const { sessionId } = place;
    const key = { threadId, toolCallId: call.id };
    const end = await this.#call(call, threadId, place);
    if ('hasBegun' in end) return end;
    const store = () => storeResponse(key, end, { blobs, sessionId });
    const result = await retryWhileUnavailable(store, place.ending).catch(() => undefined);
    return result ? { result } : { hasBegun: true };
  }

  async #call(
    call: ToolCall,
    threadId: string,
    { turnId, isRun, sessionId, owner, spec, stop, ending }: CellContext,
  ): Promise<UnstoredResult | { hasBegun: boolean }> {
    const { mcpTools, toolTimeoutMs: timeoutMs } = this.#options;
    if (stop.aborted) return { outcome: 'cancelled', text: outcomeText('cancelled') };
    if (ending.aborted) return { hasBegun: false };
    const operationId = operationIdOf({ turnId, isRun }, { threadId, toolCallId: call.id });
    const options = { spec, scope: { sessionId, owner }, operationId, timeoutMs, signal: ending, mayRepeat: true };
    const loadToolset = () => Promise.reject(new TypeError('the tools of servers do not read the toolset'));
    const more = { resumed: undefined, reliesOn: ON_NO_CONNECTION, loadToolset };
    // `run` throws only before the call was sent.
    const outcome = await mcpTools.run(call, { ...options, ...more }).catch(() => undefined);
    if (outcome && hasResponded(outcome)) return resultOf(outcome);
    const hasBegun = outcome?.status === 'unknown' || outcome?.status === 'asks';
    if (!stop.aborted) return { hasBegun };
    return hasBegun ? CANCELLED : { outcome: 'cancelled', text: outcomeText('cancelled') };
  }
}

/** Whether a call runs as soon as the turn has its message, and may run again. */
function isDirect({ route, info }: ToolCall): boolean {
  if (route.to !== 'server' || info.type !== 'mcp') return false;
  return route.effect === 'retry' && !route.approval && !route.order && !route.inSandbox;
}

/** A message whose calls the turn runs again: their results are too large for a piece. */
export function begun({ message, ...asked }: CodeMessage): CodeMessage {
  const toolCalls = message.toolCalls.map((call): ToolCall => {
    const { route } = call;
    return route.to === 'server' ? { ...call, route: { ...route, hasBegun: true } } : call;
  });
  return { ...asked, message: { ...message, toolCalls } };
}

function toolOf({ info }: ToolCall): string {
  return info.type === 'mcp' ? `${info.serverId} ${info.name}` : '';
}
