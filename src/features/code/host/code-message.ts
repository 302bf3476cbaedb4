import { setImmediate as nextTurn } from 'node:timers/promises';
import { routeToTool, type RefusedCall } from '../../../agents/route-calls.ts';
import type { CallKey } from '../../../core/tool-records.ts';
import type { WithoutId } from '../../../core/records/base.ts';
import type { ModelMessage } from '../../../core/records/message.ts';
import type { ToolCall } from '../../../core/records/calls.ts';
import type { ToolResponse } from '../../../core/records/results.ts';
import { callHash } from '../../../engine/call-hash.ts';
import type { RoutedCall } from '../../../tools/system-tool.ts';
import type { AgentSpec } from '../../../spec/agent-spec.ts';
import { codeActionsOf } from '../../../spec/code-actions.ts';
import { parseCommand } from '../commands/parse-command.ts';
import type { KernelCall } from '../kernel/kernel-calls.ts';
import type { CodeRules } from '../permissions/code-rules.ts';
import { decideShell } from '../permissions/decide-shell.ts';
import type { CommandPiece } from '../permissions/permission-action.ts';
import { messageOfCode } from './code-thread-records.ts';
import type { CodeToolset } from './code-toolset.ts';

export type CodeToolRequest = Extract<KernelCall, { kind: 'tool' }>;
export type CommandRequest = Extract<KernelCall, { kind: 'command' }>;

/** A request of code, and its calls in the thread: a command line has one call for each piece. */
export interface Requested {
  request: KernelCall;
  ids: string[];
}

interface MessageOptions {
  messageId: string;
  threadId: string;
  /** The call of the code. */
  cell: CallKey;
  spec: AgentSpec;
  toolset: CodeToolset;
  rules: CodeRules;
  /** See `CallHandling`. */
  requesters: () => Promise<string[]>;
  /** Hides the values of variables of the kernel host: see `HiddenValues`. */
  mask: (text: string) => string;
}

/** How many calls of one message may wait for people: all waiting calls of a turn are in one payload of Temporal. */
const MAX_ASKED = 50;

type RoutedToolCall = { call: ToolCall } & Pick<RoutedCall, 'problem' | 'outcome' | 'noResult'> &
  Pick<ToolResponse, 'byRule'>;

/** The maximum number of calls of a message, whose records have to fit into one payload of Temporal. */
const MAX_CALLS = 64;

/** The maximum number of pieces of a command line; a line with more is decided as a whole. */
const MAX_PIECES = 32;

/** The message with the requests of a cell, and the results that its calls already have. */
export interface CodeMessage {
  message: ModelMessage;
  results: WithoutId<ToolResponse>[];
  requested: Requested[];
  /** Whether people decide on some of the calls. */
  asks: boolean;
}

/** Makes the message with the requests of a cell, and the results of the calls that cannot run. */
export async function codeMessage(requests: readonly KernelCall[], options: MessageOptions): Promise<CodeMessage> {
  const { messageId: id, threadId } = options;
  const at = new Date().toISOString();
  const routed: RoutedToolCall[] = [];
  const requested: Requested[] = [];
  let asked = 0;
  for (const [index, given] of requests.entries()) {
    const request = masked(given, options.mask);
    const later = requests.length - index - 1;
    const room = Math.min(MAX_PIECES, MAX_CALLS - routed.length - later);
    const made =
      request.kind === 'tool' ? [await routeTool(request, options)] : await routeCommand(request, room, options);
    const asks = made.filter(isAsked).length;
    const problem = request === given ? (asks > 0 && asked + asks > MAX_ASKED ? TOO_MANY : undefined) : HIDDEN;
    if (problem === undefined) asked += asks;
    routed.push(...(problem === undefined ? made : made.map((one) => refused(one, problem))));
    requested.push({ request, ids: made.map(({ call }) => call.id) });
    // Parsing and rules take processor time.
    await nextTurn();
  }
  const toolCalls = routed.map(({ call }) => withExpiry(call, options.spec, at));
  const message = messageOfCode({ id, at, threadId, content: '', toolCalls, finishReason: 'tool_calls' });
  const results = routed.flatMap(({ call, problem, outcome = 'failed', noResult, byRule }) => {
    if (problem === undefined) return [];
    const base = { kind: 'tool.response', at, threadId, toolCallId: call.id, outcome, content: problem } as const;
    return [{ ...base, ...(noResult && { noResult }), ...(byRule && { byRule }) }];
  });
  return { message, results, requested, asks: asked > 0 };
}

/** Adds the agent's time limit to a call that waits for an approval. */
function withExpiry(call: ToolCall, spec: AgentSpec, at: string): ToolCall {
  const { route } = call;
  const seconds = codeActionsOf(spec)?.approvalTimeoutSeconds;
  if (seconds === undefined || route.to !== 'server' || !route.approval || !route.action) return call;
  const expiresAt = Date.parse(at) + seconds * 1000;
  return { ...call, route: { ...route, action: { ...route.action, expiresAt } } };
}

function isAsked({ call: { route } }: RoutedToolCall): boolean {
  return route.to === 'server' && route.approval;
}

const TOO_MANY = `at most ${MAX_ASKED} calls that are made together may wait for a person`;

/** The problem of a call with a hidden value, which would be logged, and shown to the approvers. */
const HIDDEN =
  'the value of a variable of the kernel host does not leave the sandbox: in a command, write the variable of the environment ' +
  '(such as `$TOKEN`) instead of its value; tools cannot be given it';

/** The request with hidden values masked; the same object if it has none. */
function masked(request: KernelCall, mask: (text: string) => string): KernelCall {
  if (request.kind === 'tool') {
    const { server, tool, arguments: args } = request;
    if ([server, tool, args].every((text) => mask(text) === text)) return request;
    return { ...request, server: mask(server), tool: mask(tool), arguments: mask(args) };
  }
  const { text, cwd } = request;
  return mask(text) === text && mask(cwd) === cwd ? request : { ...request, text: mask(text), cwd: mask(cwd) };
}

function refused({ call }: RoutedToolCall, problem: string): RoutedToolCall {
  return { call: { ...call, route: { to: 'answered' } }, problem };
}

async function routeTool(
  { number, server, tool: name, arguments: args }: CodeToolRequest,
  { toolset, spec, rules, requesters, cell }: MessageOptions,
): Promise<RoutedToolCall> {
  const id = `call_${number}`;
  const tool = toolset.find(server, name);
  if (!tool) {
    const call = { id, name, arguments: args, info: { type: 'system', name }, route: { to: 'answered' } } as const;
    const problem = `the code of this agent has no tool ${name} of a server ${server}, or the server cannot be reached`;
    return { call, problem, noResult: 'unknown_tool' };
  }
  const text = { id, name: tool.name, arguments: args, info: tool.info };
  const routed = await routeToTool(text, tool, { spec, rules, requesters });
  if (!('route' in routed)) throw new Error('a tool of a server is run by the server');
  const { route, ...rest } = refusal(routed);
  const own = route.to === 'server' && route.action ? { ...route, action: { ...route.action, parent: cell } } : route;
  return { call: { ...text, route: own }, ...rest };
}

/** The outcome of a refused call. A denial by a policy or rule is reported as such in the exception of the code. */
function refusal({ isDenied, ...routed }: RefusedCall): RoutedCall & Pick<ToolResponse, 'byRule'> {
  const problem = 'the policy of the agent does not allow it';
  return isDenied ? { ...routed, outcome: 'denied', problem, byRule: true } : routed;
}

/** The pieces of a line are decided one by one, and run together or not at all. */
async function routeCommand(
  request: CommandRequest,
  maxPieces: number,
  options: MessageOptions,
): Promise<RoutedToolCall[]> {
  const { text, isScript, cwd, number } = request;
  const { pieces } = parseCommand(text);
  const commands = pieces.flatMap((piece) => piece.commands);
  const isDivided = !isScript && pieces.length > 0 && pieces.length <= maxPieces;
  const parts = isDivided ? pieces : [{ text, isOpaque: true, commands }];
  const name = isScript ? 'shell_script' : 'shell';
  const routed = await Promise.all(
    parts.map(async (piece, i): Promise<RoutedToolCall> => {
      const place = { line: text, part: i + 1, parts: parts.length, cwd };
      const args = isScript ? { script: text, cwd } : { command: piece.text, ...place };
      const id = parts.length === 1 ? `call_${number}` : `call_${number}_${i + 1}`;
      const made = { id, name, arguments: JSON.stringify(args), info: { type: 'system', name } } as const;
      return routePiece(made, { piece, isScript }, options);
    }),
  );
  if (routed.every(({ problem }) => problem === undefined)) return routed;
  return routed.map(({ call, ...rest }) =>
    rest.problem === undefined
      ? { call: { ...call, route: { to: 'answered' } }, problem: NOT_RUN, outcome: 'cancelled' }
      : { call, ...rest },
  );
}

/** The result of a piece of a line of which another one is not run. */
export const NOT_RUN = 'This command was not executed: another part of its line is not allowed.';

async function routePiece(
  call: Omit<ToolCall, 'route'>,
  { piece, isScript }: { piece: CommandPiece; isScript: boolean },
  { spec, rules, cell, requesters }: MessageOptions,
): Promise<RoutedToolCall> {
  const { decision, policy } = decideShell({ piece, isScript, spec, rules });
  if (decision === 'deny') {
    const problem = 'the permissions of the agent do not allow it';
    return { call: { ...call, route: { to: 'answered' } }, problem, outcome: 'denied', byRule: true };
  }
  const isOpaque = !isScript && piece.isOpaque;
  const action = { type: isScript ? ('shell_script' as const) : ('shell' as const), parent: cell };
  const route: ToolCall['route'] = {
    to: 'server',
    effect: 'once',
    approval: decision === 'ask',
    callHash: callHash(call),
    action: { ...action, ...(isOpaque && { isOpaque }) },
    inSandbox: true,
    ...(policy && { policy }),
    ...(policy?.excludeRequester && { requesters: await requesters() }),
  };
  return { call: { ...call, route } };
}
