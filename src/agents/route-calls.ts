import { setImmediate as nextTurn } from 'node:timers/promises';
import { asks, heldByAsking } from '../core/call-order.ts';
import type { GivenMessage } from '../core/given-conversation.ts';
import type { ToolCallText } from '../core/message.ts';
import type { AsDraft, ToolRoute } from '../core/records/calls.ts';
import { outcomeText } from '../core/tool-records.ts';
import { callHash } from '../engine/call-hash.ts';
import { parseJson, parseModelArguments } from '../tools/arguments.ts';
import { decideCall, type CallRules } from '../tools/decision-policy.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import type { RoutableCall, RoutedCall } from '../tools/system-tool.ts';
import { calledBy, type AgentTool, type ServerRun, type Toolset } from '../tools/toolset.ts';
import type { PreparedModelCall } from './prepare-model-call.ts';

interface CallWithRoute {
  call: ToolCallText;
  routed: RoutedCall;
}

/** The message whose calls are routed. */
interface RoutedMessage {
  prepared: Pick<PreparedModelCall, 'toolset' | 'conversation' | 'files' | 'request' | 'spec'>;
  /** Set for a message of the client's conversation. */
  given?: GivenMessage | undefined;
  /** The tools for those of its calls that the agent has not made: see `GivenMessage.draftRoles`. */
  draftToolset?: Toolset | undefined;
  /** It ended at the limit of output tokens. */
  mayBeCutOff: boolean;
}

/** What happens to the calls of a message. */
export interface CallHandling extends Pick<RoutableCall, 'modelCall' | 'loadBlob' | 'signal'> {
  /** Why no call of the message can run; undefined if they can. */
  refusal: string | undefined;
  /** How many calls may wait for a human or a client. */
  maxWaiting: number;
  /** The ids of the subjects that have requested the calls: see `PendingCall`. */
  requesters: () => Promise<string[]>;
  /** The rules on the calls of an agent, beside its policies; undefined if there are none for it. */
  rules: (spec: AgentSpec) => Promise<CallRules | undefined>;
}

const DENIED_BY_POLICY = 'This tool call was not executed: the policy of the agent, or a rule, does not allow it.';

const CUT_OFF_CALL = 'This call was not executed: its arguments were cut off at the limit of output tokens.';

const NOT_MADE =
  'This tool call was not executed: its server is not open to the agents of this user, and the call is not known as one ' +
  'that this agent has made. A client sends the calls of a run back with the id of their item.';

/** Routes each call in its own turn of the event loop, because validating arguments may block for up to 100 ms. */
export async function routeCalls(
  calls: readonly ToolCallText[],
  message: RoutedMessage,
  handling: CallHandling,
): Promise<CallWithRoute[]> {
  const all: CallWithRoute[] = [];
  const rules = calls.length > 0 ? await handling.rules(message.prepared.spec) : undefined;
  for (const [index, call] of calls.entries()) {
    const earlier = all.map(({ routed }) => routed);
    const isLast = index === calls.length - 1;
    const routed = await routeCall(call, { index, earlier, isLast }, { message, handling, rules });
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
  { isLast, ...position }: Pick<RoutableCall, 'index' | 'earlier'> & { isLast: boolean },
  { message, handling, rules }: { message: RoutedMessage; handling: CallHandling; rules: CallRules | undefined },
): Promise<RoutedCall> {
  const { refusal, requesters, modelCall, loadBlob, signal } = handling;
  const { result: given, isMade } = message.given?.toolCalls[position.index] ?? {};
  if (given) return { route: { to: 'answered' }, given };
  if (refusal !== undefined) return { route: { to: 'answered' }, problem: refusal };
  const { name } = call;
  // Without arguments, the call would be complete for a tool that requires none.
  const isCutOff = message.mayBeCutOff && isLast && call.arguments.trim() === '';
  if (isCutOff) return { route: { to: 'answered' }, problem: CUT_OFF_CALL };
  // A model may call a deferred tool before it has found it: the arguments are validated like those of any other tool.
  const { toolset, request, spec, conversation, files } = message.prepared;
  const draftRoles = isMade ? undefined : message.given?.draftRoles;
  const asDraft = draftRoles && { draftRoles };
  const own = calledBy('model', toolset.tools.get(name));
  const tool = asDraft ? message.draftToolset?.tools.get(name) : own;
  if (own && !tool) return { route: { to: 'answered' }, problem: NOT_MADE };
  if (!tool) {
    const known = request.tools.map((one) => one.name).join(', ') || 'none';
    const problem = `There is no tool named ${name}. The tools are: ${known}.`;
    return { route: { to: 'answered' }, problem, noResult: 'unknown_tool' };
  }
  const routed = await routeToTool(call, tool, { spec, asDraft, requesters, rules });
  if ('route' in routed) {
    const { isDenied: _, ...call } = routed;
    return call;
  }
  const { args, run, decided } = routed;
  if (run.to === 'client') return { route: { to: 'client' } };
  const texts = { conversation, loadBlob, loadFile: files.loadFile };
  const answered = await run.route({ call, args, ...position, asDraft, modelCall, ...texts, signal });
  // Without an `approval`, the start of a sub-agent is not decided, but each of the sub-agent's calls is.
  if (run.approval === undefined || !answered.started) return answered;
  // The thread begins when the call runs, with what the agent may start then.
  return { route: { ...decided, effect: 'retry', startsTask: true } };
}

/** `isDenied`: a policy or a rule does not allow it. */
export interface RefusedCall extends RoutedCall {
  isDenied?: true;
}

interface OtherCall {
  args: Record<string, unknown>;
  run: Exclude<AgentTool['run'], ServerRun>;
  decided: Omit<Extract<ToolRoute, { to: 'server' }>, 'effect'>;
}

interface ToolRouting extends Pick<CallHandling, 'requesters'> {
  spec: AgentSpec;
  rules: CallRules | undefined;
  asDraft?: AsDraft | undefined;
}

/**
 * The route of a call that the server runs, or that cannot run. Otherwise the arguments of the call, how it is handled,
 * and the decision that applies if the server has to run it after all.
 */
export async function routeToTool(
  call: ToolCallText,
  tool: AgentTool,
  { spec, rules, asDraft, requesters }: ToolRouting,
): Promise<RefusedCall | OtherCall> {
  const parsed = parseModelArguments(tool, call.arguments);
  if (!parsed.ok) return { route: { to: 'answered' }, problem: parsed.message };
  const { run } = tool;
  const { decision, policy } = decideCall(spec, tool, parsed.value, rules);
  if (decision === 'deny') return { route: { to: 'answered' }, problem: DENIED_BY_POLICY, isDenied: true };
  const action = rules?.actionOf(tool);
  const decided = {
    to: 'server' as const,
    approval: decision === 'ask',
    callHash: callHash(call),
    ...(action && { action }),
    ...(policy && { policy }),
    ...(policy?.excludeRequester && { requesters: await requesters() }),
    ...asDraft,
  };
  if (run.to !== 'server') return { args: parsed.value, run, decided };
  const { effect, order, inSandbox } = run;
  return { route: { ...decided, effect, ...(order && { order }), ...(inSandbox && { inSandbox }) } };
}

/** The calls whose arguments are complete, routed as cancelled. */
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
  const behind = heldByAsking(all);
  return all.filter((call) => asks(call.route) || behind.has(call)).length;
}

function tooManyWaiting(max: number): RoutedCall {
  const problem = `This call was not executed: at most ${max} calls of a message may wait for a person.`;
  return { route: { to: 'answered' }, problem };
}
