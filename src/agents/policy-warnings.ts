import { SUBJECT_NAME, type Role } from '../core/subject.ts';
import type { AgentSpec, DecisionPolicy } from '../spec/agent-spec.ts';
import { approversIn } from './policy-problem.ts';

/** The subjects that can send requests now, as far as they can be listed. */
export interface KnownSubjects {
  /** The roles of the subjects with keys, by subject id. */
  roles: ReadonlyMap<string, ReadonlySet<Role>>;
  /** Whether bearers of tokens can, too. They cannot be listed: only their tokens contain their ids and roles. */
  hasBearers: boolean;
}

/** The warnings for an agent's author about its decision policies, which are valid. */
export function policyWarnings({ config }: AgentSpec, known: KnownSubjects): string[] {
  return (config?.decision_policies ?? []).flatMap((policy, i) => {
    const param = `config.decision_policies.${i}`;
    const unknown = approversIn(policy).flatMap(([field, { subjects }]) =>
      (subjects ?? []).flatMap((subject, j) =>
        isUnknown(subject, known)
          ? [`${param}.${field}.subjects.${j}: no working API key has the name ${subject}`]
          : [],
      ),
    );
    return [...unknown, ...unsatisfiable(policy, known).map((message) => `${param}: ${message}`)];
  });
}

function isUnknown(subject: string, { roles }: KnownSubjects): boolean {
  return SUBJECT_NAME.test(subject) && !roles.has(subject);
}

/**
 * Why the known subjects cannot satisfy a policy in any session: whichever subject owns it, too few may decide. Empty
 * if bearers of tokens may have the roles, since there may be any number of them.
 */
function unsatisfiable(policy: DecisionPolicy, known: KnownSubjects): string[] {
  if (policy.decision === 'deny') return [];
  const named = approversIn(policy).map(([, approvers]) => approvers);
  const isDefault = !policy.approvers;
  const roles = new Set<Role>([
    ...named.flatMap((one) => one.roles ?? []),
    ...(isDefault ? ['approver' as const] : []),
  ]);
  if (known.hasBearers && roles.size > 0) return [];
  const withRole = [...known.roles].filter(([, own]) => [...roles].some((role) => own.has(role))).map(([id]) => id);
  const subjects = named.flatMap((one) => one.subjects ?? []).filter((id) => !isUnknown(id, known));
  const most = Math.max(
    0,
    ...ownersOf(known).map((owner) => {
      const deciders = new Set([...subjects, ...withRole, ...(isDefault ? [owner] : [])]);
      if (policy.exclude_requester) deciders.delete(owner);
      return deciders.size;
    }),
  );
  const quorum = policy.quorum ?? 1;
  if (most >= quorum) return [];
  const excluded = policy.exclude_requester ? ' beside the one that asks' : '';
  return [`${quorum} must allow a call, and of the known subjects at most ${most} may decide${excluded}`];
}

/** The subjects that may own a session; an empty id stands for a bearer of a token. */
function ownersOf({ roles, hasBearers }: KnownSubjects): string[] {
  const withKeys = [...roles].filter(([, own]) => own.has('admin') || own.has('user')).map(([id]) => id);
  return [...withKeys, ...(hasBearers ? [''] : [])];
}
