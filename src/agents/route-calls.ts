import { setImmediate as nextTurn } from 'node:timers/promises';
import type { BlobStore } from '../blobs/blob-store.ts';
import { asks, heldByAsking } from '../core/call-order.ts';
import type { GivenMessage, GivenResult } from '../core/given-conversation.ts';
import type { ToolCallText } from '../core/message.ts';
import type { NoResult, SubAgent, ToolOutcome, ToolRoute } from '../core/records.ts';
import { outcomeText } from '../core/tool-records.ts';
import { callHash } from '../engine/call-hash.ts';
import { parseJson, parseModelArguments } from '../tools/arguments.ts';
import { decideCall } from '../tools/decision-policy.ts';
import { MAX_READS_BY_MESSAGE, readToolResponse } from '../tools/read-tool-response.ts';
import type { Toolset } from '../tools/toolset.ts';
import type { PreparedModelCall } from './prepare-model-call.ts';
import type { DelegationRoute } from './route-delegation.ts';
import type { StartedSubAgent, SubAgentCall } from './start-sub-agent.ts';

/** How a call is handled. */
interface RoutedCall {
  route: ToolRoute;
  /** Why the call cannot run. */
  problem?: string;
  /** The result of a call that the conversation answers. */
  content?: string;
  /** Default: succeeded, or failed if there is a problem. */
  outcome?: ToolOutcome;
  noResult?: NoResult;
  /** The result that the client has given with its conversation. */
  given?: GivenResult;
  /** The sub-agent that the call starts. */
  started?: { thread: SubAgent; input: string };
}

interface CallWithRoute {
  call: ToolCallText;
  routed: RoutedCall;
}

/** The message whose calls are routed. */
interface RoutedMessage {
  prepared: Pick<PreparedModelCall, 'toolset' | 'conversation' | 'files' | 'request' | 'spec'>;
  /** It is this one of the client's conversation. */
  given?: GivenMessage | undefined;
  /** The tools as they are for those of its calls that the agent has not made: see `GivenMessage.draftRoles`. */
  draftToolset?: Toolset | undefined;
  /** It ended at the limit of output tokens. */
  mayBeCutOff: boolean;
}

/** What happens to the calls of a message. */
export interface CallHandling {
  /** Why no call of the message can run; undefined if they can. */
  refusal: string | undefined;
  /** How many calls may wait for a human or a client. */
  maxWaiting: number;
  startSubAgent: (call: SubAgentCall) => Promise<StartedSubAgent>;
  delegate: (call: Pick<SubAgentCall, 'index' | 'started'>) => DelegationRoute;
  /** The ids of those who have asked for the calls: see `PendingCall`. */
  requesters: () => Promise<string[]>;
  /** Loads a text of the session. */
  loadBlob: (blob: string) => ReturnType<BlobStore['get']>;
}

const DENIED_BY_POLICY = 'This tool call was not executed: the policy of the agent does not allow it.';

const CUT_OFF_CALL = 'This call was not executed: its arguments were cut off at the limit of output tokens.';

const NOT_MADE =
  'This tool call was not executed: its server is not open to the agents of this user, and the call is not known as one ' +
  'that this agent has made. A client sends the calls of a run back with the id of their item.';

const TOO_MANY_READS = `This call was not executed: a message may read at most ${MAX_READS_BY_MESSAGE} results.`;

/** Routes each call in its own turn of the event loop, because validating arguments may block for up to 100 ms. */
export async function routeCalls(
  calls: readonly ToolCallText[],
  message: RoutedMessage,
  handling: CallHandling,
): Promise<CallWithRoute[]> {
  const all: CallWithRoute[] = [];
  for (const [index, call] of calls.entries()) {
    const started = all.filter(({ routed: { route } }) => route.to === 'thread' || route.to === 'session').length;
    const reads = all.filter(({ routed }) => routed.content !== undefined).length;
    const routed = await routeCall(
      call,
      { index, started, reads, isLast: index === calls.length - 1 },
      { message, handling },
    );
    all.push({ call, routed });
    if (countWaiting(all) > handling.maxWaiting) {
      all[index] = { call, routed: tooManyWaiting(handling.maxWaiting) };
    }
    await nextTurn();
  }
  return all;
}

async function routeCall(
  call: ToolCallText,
  { reads, isLast, ...place }: Pick<SubAgentCall, 'index' | 'started'> & { reads: number; isLast: boolean },
  { message, handling }: { message: RoutedMessage; handling: CallHandling },
): Promise<RoutedCall> {
  const { refusal, startSubAgent, delegate, loadBlob } = handling;
  const { result: given, isMade } = message.given?.toolCalls[place.index] ?? {};
  if (given) return { route: { to: 'answered' }, given };
  if (refusal !== undefined) return { route: { to: 'answered' }, problem: refusal };
  const { name, arguments: args } = call;
  // Without any, the call would be complete for a tool that requires none.
  const isCutOff = message.mayBeCutOff && isLast && args.trim() === '';
  if (isCutOff) return { route: { to: 'answered' }, problem: CUT_OFF_CALL };
  // A model may call a deferred tool before it has found it: the arguments are validated like those of any other tool.
  const { toolset, request, spec, conversation, files } = message.prepared;
  const draftRoles = isMade ? undefined : message.given?.draftRoles;
  const asDraft = draftRoles && { draftRoles };
  const own = toolset.tools.get(name);
  const tool = asDraft ? message.draftToolset?.tools.get(name) : own;
  if (own && !tool) return { route: { to: 'answered' }, problem: NOT_MADE };
  if (!tool) {
    const known = request.tools.map((one) => one.name).join(', ') || 'none';
    const problem = `There is no tool named ${name}. The tools are: ${known}.`;
    return { route: { to: 'answered' }, problem, noResult: 'unknown_tool' };
  }
  const parsed = parseModelArguments(tool, args);
  if (!parsed.ok) return { route: { to: 'answered' }, problem: parsed.message };
  const { decision, policy } = decideCall(spec, tool, parsed.value);
  if (decision === 'deny') return { route: { to: 'answered' }, problem: DENIED_BY_POLICY };
  // These have no approval: their client answers them, or the calls of their sub-agents are decided one by one.
  if (tool.run.to === 'client') return { route: { to: 'client' } };
  if (tool.run.to === 'thread') {
    const started = await startSubAgent({ call, args: parsed.value, ...asDraft, ...place });
    if ('problem' in started) return { route: { to: 'answered' }, ...started };
    return { route: { to: 'thread', threadId: started.thread.threadId }, started };
  }
  if (tool.run.to === 'session') {
    const delegated = delegate(place);
    if ('problem' in delegated) return { route: { to: 'answered' }, ...delegated };
    return { route: { to: 'session', ...delegated, callHash: callHash(call), ...asDraft } };
  }
  if (tool.run.to === 'conversation') {
    if (reads >= MAX_READS_BY_MESSAGE) return { route: { to: 'answered' }, problem: TOO_MANY_READS };
    return {
      route: { to: 'answered' },
      ...(await readToolResponse(conversation, parsed.value, { ...files, loadBlob })),
    };
  }
  const { effect, order } = tool.run;
  const approval = decision === 'ask';
  const decided = {
    ...(order && { order }),
    ...(policy && { policy }),
    ...(policy?.excludeRequester && { requesters: await handling.requesters() }),
    ...asDraft,
  };
  return { route: { to: 'server', effect, approval, callHash: callHash(call), ...decided } };
}

/** The calls whose arguments are complete, as cancelled ones. */
export function completeCalls(calls: readonly ToolCallText[]): CallWithRoute[] {
  const cancelled = { route: { to: 'answered' }, content: outcomeText('cancelled'), outcome: 'cancelled' } as const;
  return calls.flatMap((call) => {
    const parsed = parseJson(call.arguments);
    const isComplete = 'value' in parsed && typeof parsed.value === 'object';
    return isComplete ? [{ call, routed: cancelled }] : [];
  });
}

/** How many of the first calls of a message wait for a human or a client, or behind those that do. */
function countWaiting(calls: readonly CallWithRoute[]): number {
  const all = calls.map(({ routed }) => routed);
  const held = heldByAsking(all);
  return all.filter((call) => asks(call.route) || held.has(call)).length;
}

function tooManyWaiting(max: number): RoutedCall {
  const problem = `This call was not executed: at most ${max} calls of a message may wait for a person.`;
  return { route: { to: 'answered' }, problem };
}
