import type { ApprovalPolicy, Approvers, CallAction } from '../core/records/calls.ts';
import { hashOf } from '../lib/hash.ts';
import { valueAt } from '../lib/json.ts';
import { cpuStopwatch } from '../lib/timeout.ts';
import type { AgentSpec, DecisionPolicy, McpServer } from '../spec/agent-spec.ts';
import { asksForTools } from '../spec/code-actions.ts';
import { conditionValidators, fitsSchema, argumentsViolate } from './arguments.ts';
import { argumentSchema, type AgentTool } from './toolset.ts';

/** The rules on calls, beside the policies of the agent. Features provide them: see `CallHandling.rules`. */
export interface CallRules {
  /** The action of a call on which rules decide; undefined for other calls. */
  actionOf: (tool: Pick<AgentTool, 'info'>) => CallAction | undefined;
  /** The decision of the rules that match; undefined if none does. */
  decide: (tool: Pick<AgentTool, 'info'>, args: Record<string, unknown>) => RuledDecision | undefined;
}

/** The decision of the rules on a call. */
export interface RuledDecision {
  decision: Decision['decision'];
  /** Whether a rule of the agent matches. Only one of these lifts what the agent denies by default. */
  isOfAgent: boolean;
}

/** What happens to a call: it runs, it waits for an approval (by the policy, if there is one), or it does not run. */
export interface Decision {
  decision: 'allow' | 'ask' | 'deny';
  policy?: ApprovalPolicy;
}

/**
 * How long the conditions of all policies may take for one call, in milliseconds of processor time: each has a limit of
 * its own, but there may be 100. A condition that is not reached in time counts as one that cannot be evaluated.
 */
const MAX_CONDITIONS_MS = 100;

/**
 * Decides on a call of any tool: by the first of the agent's policies that fits it, else by the
 * `require_approval_for_tools` of its server, if it has one, and by the `approvals` of `code_actions` for tools.
 * Earlier policies that may fit count as well, and the strictest decision holds: arguments that the server may read as
 * others must not be a way around a later policy. The operator's policy may require an approval that the agent's does
 * not. Rules that match replace the decision without a policy, and make the decision of a policy stricter; the policy
 * still determines who decides.
 */
export function decideCall(
  spec: AgentSpec,
  { run, ...tool }: AgentTool,
  args: Record<string, unknown>,
  rules?: Pick<CallRules, 'decide'>,
): Decision {
  let used = 0;
  const evaluate = (schema: object, value: unknown): boolean | undefined => {
    if (used >= MAX_CONDITIONS_MS) return undefined;
    // Before the time is measured: the first call of a process compiles the schema, and must not be decided
    // differently. The request that brought the schema has bounded the time of its compilation.
    conditionValidators.of(schema);
    const ms = cpuStopwatch();
    const fits = fitsSchema(schema, value);
    used += ms();
    return fits;
  };
  let odd: boolean | undefined;
  const isOdd = (): boolean => (odd ??= argumentsViolate(argumentSchema(tool), args));
  const candidates = candidatesFor(spec, { run, tool, args, evaluate, isOdd }, rules?.decide(tool, args));
  const { decision, policy } = candidates.reduce((one, next) => (strictness(next) > strictness(one) ? next : one));
  return { decision, ...(decision === 'ask' && policy && { policy: approvalPolicy(policy) }) };
}

/** Whether a call of a tool may wait for an approval now. Conditions on the arguments may fit. */
export function mayAsk(spec: AgentSpec, { run, ...tool }: AgentTool, rules?: Pick<CallRules, 'decide'>): boolean {
  const called = { run, tool, args: {}, evaluate: () => undefined, isOdd: () => true };
  const candidates = candidatesFor(spec, called, rules?.decide(tool, {}));
  if (candidates.some(({ decision, mayFit }) => decision === 'deny' && !mayFit)) return false;
  return candidates.some(({ decision }) => decision === 'ask');
}

/** The decisions of the policies and rules that fit, or may fit, a call. There is at least one; the strictest holds. */
function candidatesFor(
  spec: AgentSpec,
  { run, ...called }: MatchedCall & Pick<AgentTool, 'run'>,
  ruled: RuledDecision | undefined,
): Candidate[] {
  const { isFloor, isDenied } = run.to === 'client' ? {} : run;
  if (isDenied && !ruled?.isOfAgent) return [{ decision: 'deny' }];
  const candidates: Candidate[] = [];
  let decidedBy: DecisionPolicy | undefined;
  for (const policy of spec.config?.decision_policies ?? []) {
    const fits = matches(policy, called);
    if (fits === false) continue;
    // A condition that cannot be evaluated must not let a call run.
    const mustAsk = policy.decision === 'allow' && (isFloor === true || fits === undefined);
    candidates.push({ decision: mustAsk ? 'ask' : policy.decision, policy, ...(!fits && { mayFit: true as const }) });
    if (fits === true) {
      decidedBy = policy;
      break;
    }
  }
  if (ruled) {
    const mustAsk = ruled.decision === 'allow' && isFloor === true && !decidedBy;
    candidates.push({ decision: mustAsk ? 'ask' : ruled.decision, ...(decidedBy && { policy: decidedBy }) });
  } else if (!decidedBy) {
    candidates.push({ decision: asksByDefault(spec, { info: called.tool.info, run }) ? 'ask' : 'allow' });
  }
  return candidates;
}

/**
 * Whether calls that no policy and no rule decides wait for an approval. The `approvals` of `code_actions` for tools
 * apply to all kinds but system tools, which have entries of their own there.
 */
function asksByDefault(spec: AgentSpec, { info, run }: Pick<AgentTool, 'info' | 'run'>): boolean {
  if (run.to === 'client') return false;
  return run.approval === true || (info.type !== 'system' && asksForTools(spec));
}

interface Candidate {
  decision: Decision['decision'];
  policy?: DecisionPolicy;
  /** It cannot be evaluated whether the policy fits. */
  mayFit?: true;
}

/** Between policies that ask, the quorum counts first, then whether approvers are named, then who is excluded. */
function strictness({ decision, policy }: Candidate): number {
  if (decision === 'deny') return Infinity;
  if (decision === 'allow') return 0;
  return (policy?.quorum ?? 1) * 4 + (policy?.approvers ? 2 : 0) + (policy?.exclude_requester === true ? 1 : 0);
}

interface MatchedCall {
  tool: Pick<AgentTool, 'info' | 'annotation' | 'parameters' | 'listedSchema'>;
  args: object;
  evaluate: typeof fitsSchema;
  /** Whether the arguments violate the schema of the tool, so that its server may read them as others. */
  isOdd: () => boolean;
}

/**
 * Whether a policy fits a call; undefined if that cannot be evaluated. A server may fill in the default of a missing
 * argument, and read an argument of a wrong type as another value. A policy with conditions that asks or denies may fit
 * such a call; a policy with conditions that allows does not.
 */
function matches(
  { match, decision }: DecisionPolicy,
  { tool: called, args, evaluate, isOdd }: MatchedCall,
): boolean | undefined {
  const { info, annotation } = called;
  const { server, tool, annotations, arguments: conditions } = match;
  const serverName = info.type === 'mcp' ? info.serverName : undefined;
  if (typeof server === 'string' && server !== serverName) return false;
  if (typeof tool === 'string' && !fitsWildcards(tool, info.name)) return false;
  if (typeof annotations === 'string' && annotations !== annotation) return false;
  let fits: boolean | undefined = true;
  for (const [pointer, schema] of Object.entries(conditions ?? {})) {
    const value = valueAt(args, pointer);
    let isFulfilled = value === undefined ? false : evaluate(schema, value);
    if (decision === 'allow') {
      if (isFulfilled !== false && isOdd()) return false;
    } else if (isOdd()) {
      isFulfilled = undefined;
    } else if (isFulfilled === false && value === undefined) {
      const filledIn = defaultAt(argumentSchema(called), pointer);
      if (filledIn !== undefined && evaluate(schema, filledIn) !== false) isFulfilled = undefined;
    }
    if (isFulfilled === false) return false;
    fits &&= isFulfilled;
  }
  return fits;
}

function approvalPolicy(policy: DecisionPolicy): ApprovalPolicy {
  const { approvers, expires_in_seconds: expiresInSeconds, escalate } = policy;
  return {
    id: hashOf(policy),
    ...(approvers && { approvers: approversOf(approvers) }),
    ...(policy.exclude_requester === true && { excludeRequester: true }),
    quorum: policy.quorum ?? 1,
    ...(typeof expiresInSeconds === 'number' && { expiresInSeconds }),
    onExpiry: policy.on_expiry ?? 'deny',
    ...(escalate && { escalate: { afterSeconds: escalate.after_seconds, to: approversOf(escalate.to) } }),
    ...(policy.may_edit_arguments === false && { mayEditArguments: false }),
  };
}

function approversOf({ subjects, roles }: NonNullable<DecisionPolicy['approvers']>): Approvers {
  return { subjects: subjects ?? [], roles: roles ?? [] };
}

/** Which policies for the calls of an MCP server fit none of its tools, for the agent's author. */
export function decisionPolicyWarnings(
  { config }: AgentSpec,
  server: string,
  tools: readonly { name: string }[],
): string[] {
  return (config?.decision_policies ?? []).flatMap(({ match }, i) => {
    const { tool: pattern } = match;
    if (match.server !== server || typeof pattern !== 'string') return [];
    const fits = tools.some(({ name }) => fitsWildcards(pattern, name));
    return fits ? [] : [`config.decision_policies.${i}.match.tool: ${pattern} fits no tool of the server`];
  });
}

/** The most tools that a warning names, and the most characters of a name. */
const MAX_NAMED = 10;
const MAX_NAME_LENGTH = 64;

/**
 * A warning for the agent's author: the tools of an inline server that run unasked although no annotation describes
 * what they do. An empty list declares that this is intended.
 */
export function unaskedWarnings(spec: AgentSpec, server: McpServer, tools: readonly AgentTool[]): string[] {
  if (server.type !== 'inline' || server.require_approval_for_tools?.length === 0) return [];
  const names = tools
    .filter((tool) => tool.annotation === '@unannotated' && runsUnasked(spec, tool))
    .map(({ info }) => info.name.slice(0, MAX_NAME_LENGTH));
  if (names.length === 0) return [];
  const others = names.length - MAX_NAMED;
  const named = [...names.slice(0, MAX_NAMED), ...(others > 0 ? [`${others} more`] : [])].join(', ');
  return [
    `tools without annotations run without an approval: ${named}; ` +
      'add "@unannotated" to require_approval_for_tools, or set it to [] if none should ask',
  ];
}

/** Policies with conditions on the arguments may ask for some calls only, and are not counted. */
function runsUnasked(spec: AgentSpec, tool: AgentTool): boolean {
  const policy = spec.config?.decision_policies?.find((one) =>
    matches(one, { tool, args: {}, evaluate: () => false, isOdd: () => false }),
  );
  return policy ? policy.decision === 'allow' : tool.run.to === 'server' && !asksByDefault(spec, tool);
}

/** Whether a pattern fits a text: `*` is any text, `?` any character. Linear in each, so patterns may be hostile. */
export function fitsWildcards(pattern: string, text: string): boolean {
  let [p, t] = [0, 0];
  /** Where the last `*` was, and the part of the text up to which it reaches. */
  let [star, reach] = [-1, 0];
  while (t < text.length) {
    if (pattern[p] === '*') {
      [star, reach] = [p, t];
      p += 1;
    } else if (pattern[p] === '?' || pattern[p] === text[t]) {
      [p, t] = [p + 1, t + 1];
    } else if (star >= 0) {
      reach += 1;
      [p, t] = [star + 1, reach];
    } else return false;
  }
  return pattern.slice(p).replaceAll('*', '') === '';
}

/** The default of the argument at a JSON pointer, or of one that contains it. */
function defaultAt(schema: unknown, pointer: string): unknown {
  const names = pointer.split('/').slice(1);
  let [part, found] = [schema, undefined as unknown];
  for (const [i, name] of names.entries()) {
    part = valueAt(part, `/properties/${name}`);
    const rest = names.slice(i + 1).map((one) => `/${one}`);
    found = valueAt(valueAt(part, '/default'), rest.join('')) ?? found;
  }
  return found;
}
