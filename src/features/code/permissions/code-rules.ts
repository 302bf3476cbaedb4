import type { SessionRow } from '../../../catalog/schema.ts';
import type { ToolInfo } from '../../../core/records/calls.ts';
import type { SubAgent } from '../../../core/records/threads.ts';
import type { CallKey } from '../../../core/tool-records.ts';
import type { AgentSpec } from '../../../spec/agent-spec.ts';
import { codeActionsOf } from '../../../spec/code-actions.ts';
import type { CallRules, RuledDecision } from '../../../tools/decision-policy.ts';
import { callActionOf, permissionAction } from './call-action.ts';
import { decisionByRules, type AppliedRule } from './decide-action.ts';
import type { PermissionAction } from './permission-action.ts';
import { READ_ONLY } from './read-only.ts';
import type { PermissionRules, RuleTarget } from './rule-rows.ts';

/** The origin of calls. */
interface Calls {
  sessionId: string;
  subAgent?: SubAgent | undefined;
  /** The call of the code that makes them. */
  cell?: CallKey;
}

export interface RuleSources {
  sessions: { get: (id: string) => Promise<SessionRow | undefined> };
  permissionRules: Pick<PermissionRules, 'in'>;
}

/** The rules for the calls of an agent that acts in code: its own, and those of users. */
export class CodeRules implements CallRules {
  readonly #rules: readonly AppliedRule[];

  constructor(rules: readonly AppliedRule[]) {
    this.#rules = rules;
  }

  actionOf({ info }: { info: ToolInfo }) {
    return callActionOf(info);
  }

  decide({ info }: { info: ToolInfo }, args: Record<string, unknown>): RuledDecision | undefined {
    const call = callActionOf(info);
    const action = call && permissionAction(call, info, args);
    return action && this.decideAction(action);
  }

  decideAction(action: PermissionAction): RuledDecision | undefined {
    return decisionByRules(action, this.#rules, Date.now());
  }
}

/** The rules that currently apply to calls; undefined if the agent does not act in code. */
export async function codeRules(
  { sessions, permissionRules }: RuleSources,
  spec: AgentSpec,
  calls: Calls,
): Promise<CodeRules | undefined> {
  const actions = codeActionsOf(spec);
  if (!actions) return undefined;
  const session = await sessions.get(calls.sessionId);
  const stored = session ? await permissionRules.in(placesOf(session, calls), Date.now()) : [];
  const ofAgent = actions.permissions.flatMap((rule) =>
    'preset' in rule ? READ_ONLY : [{ ...rule, isOfAgent: true as const }],
  );
  return new CodeRules([...ofAgent, ...stored.map(({ rule }) => ({ ...rule, isOfAgent: false }))]);
}

/** The targets of the user rules that apply to calls. */
function placesOf(session: SessionRow, { sessionId, subAgent, cell }: Calls): RuleTarget[] {
  const agentName = agentOf(session, subAgent);
  return [
    { scope: 'session', sessionId },
    ...(agentName === undefined ? [] : [{ scope: 'always' as const, subjectId: session.subject_id, agentName }]),
    ...(cell ? [{ scope: 'cell' as const, sessionId, threadId: cell.threadId, toolCallId: cell.toolCallId }] : []),
  ];
}

/** The registered agent that makes the calls of a thread; undefined for a draft, and if it is unknown. */
export function agentOf(
  session: Pick<SessionRow, 'agent_name' | 'agent_version'>,
  subAgent: Pick<SubAgent, 'agent' | 'depth'> | undefined,
): string | undefined {
  if (subAgent?.agent !== undefined) return subAgent.agent;
  if (session.agent_version === null || (subAgent?.depth ?? 0) > 1) return undefined;
  return session.agent_name ?? undefined;
}
