import type { SessionOwner } from '../core/history.ts';
import { isTokenSubjectId, SUBJECT_NAME } from '../core/subject.ts';
import { invalidAgent, type AgentProblem } from '../engine/agent-check.ts';
import type { AgentSpec, SpecApprovers, DecisionPolicy } from '../spec/agent-spec.ts';

/** The settings of a server that determine which subjects exist. */
export interface PolicyServer {
  /** The issuer of the tokens that it accepts. */
  issuer: string | undefined;
  /** All callers are the same subject. */
  isKeyless: boolean;
}

/** What requires a turn that waits: a turn that ends has no timers, and its answers come from one caller. */
const NEEDS_WAIT = ['approvers', 'exclude_requester', 'quorum', 'expires_in_seconds', 'on_expiry', 'escalate'] as const;

/** The first problem of an agent's policies, except conditions. `owner`: author of an unregistered agent, or null. */
export function policyProblem(
  { config }: AgentSpec,
  owner: SessionOwner | null,
  server: PolicyServer,
): AgentProblem | undefined {
  for (const [i, policy] of (config?.decision_policies ?? []).entries()) {
    const param = `config.decision_policies.${i}`;
    const needing = config?.pause === 'wait' ? undefined : NEEDS_WAIT.find((field) => isGiven(policy[field]));
    if (needing !== undefined) {
      return invalidAgent(`${param}.${needing}`, `${needing} of a decision policy requires pause: "wait"`);
    }
    if (policy.exclude_requester && server.isKeyless) {
      const message =
        'on a server without keys every caller is the subject "local", so no subject could decide: create API keys first';
      return invalidAgent(`${param}.exclude_requester`, message);
    }
    for (const [field, approvers] of approversIn(policy)) {
      const problem = unknownSubject(approvers, server) ?? foreignApprover(approvers, owner);
      if (problem) return invalidAgent(`${param}.${field}.${problem.path}`, problem.message);
    }
  }
  return undefined;
}

/** The approvers that a policy names, by the fields that name them. */
export function approversIn({ approvers, escalate }: DecisionPolicy): [field: string, approvers: SpecApprovers][] {
  return [
    ...(approvers ? [['approvers', approvers] as [string, SpecApprovers]] : []),
    ...(escalate ? [['escalate.to', escalate.to] as [string, SpecApprovers]] : []),
  ];
}

interface ProblemOfApprovers {
  message: string;
  path: string;
}

/** A subject that no caller can have. */
function unknownSubject({ subjects }: SpecApprovers, { issuer }: PolicyServer): ProblemOfApprovers | undefined {
  for (const [i, subject] of (subjects ?? []).entries()) {
    if (SUBJECT_NAME.test(subject)) continue;
    if (issuer !== undefined && isTokenSubjectId(subject, issuer)) continue;
    const token = issuer === undefined ? '' : `, or ${issuer}#<sub> for the bearer of a token`;
    const message = `${JSON.stringify(subject)} is the id of no subject: give the name of an API key${token}`;
    return { message, path: `subjects.${i}` };
  }
  return undefined;
}

/** Only admins put actions into the inboxes of others. */
function foreignApprover(
  { subjects, roles }: SpecApprovers,
  owner: SessionOwner | null,
): ProblemOfApprovers | undefined {
  const own = owner?.draftRoles;
  if (!owner || !own || own.includes('admin')) return undefined;
  const subject = (subjects ?? []).findIndex((one) => one !== owner.subjectId);
  const role = (roles ?? []).findIndex((one) => !own.includes(one));
  const [what, path] = subject >= 0 ? ['subject', `subjects.${subject}`] : ['role', `roles.${role}`];
  if (subject < 0 && role < 0) return undefined;
  const message = `only agents that admins have written may name a ${what} other than your own: use a registered agent as it is`;
  return { message, path };
}

function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null && value !== false;
}
