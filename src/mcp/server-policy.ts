import { ROLES } from '../core/subject.ts';
import type { SessionOwner } from '../core/history.ts';

/** What the operator lets agents do with a registered server. */
export interface ServerPolicy {
  /** Whose drafts may name it, beside those of admins, who write agents anyway: roles, and subjects as `subject:<id>`. */
  drafts: readonly string[];
  /** The tools that agents may have at all: `@all`, `@read-only` or names. */
  tools: readonly string[];
  /**
   * The calls that need approval whatever an agent says: `@all`, `@write`, `@destructive`, `@unannotated` or names.
   * Undefined: none where an admin has written the agent, who is trusted with that as an operator is; in the drafts of
   * others all but those of read-only tools.
   */
  approval: readonly string[] | undefined;
}

/** An inline server is the agent's own. */
export const NO_POLICY: ServerPolicy = { drafts: ROLES, tools: ['@all'], approval: [] };

const ALL_BUT_READ_ONLY = ['@write', '@destructive', '@unannotated'];

/** Whether the agent of a session may use the server. */
export function mayUse({ drafts }: ServerPolicy, owner: SessionOwner): boolean {
  if (isOfAdmin(owner) || drafts.includes(`subject:${owner.subjectId}`)) return true;
  return owner.draftRoles?.some((role) => drafts.includes(role)) === true;
}

/** The approvals that the agent of a session can not do without. */
export function approvalFloor({ approval }: ServerPolicy, owner: SessionOwner): readonly string[] {
  return approval ?? (isOfAdmin(owner) ? [] : ALL_BUT_READ_ONLY);
}

/** Only admins write the agents of the registry. */
function isOfAdmin({ draftRoles }: SessionOwner): boolean {
  return draftRoles === null || draftRoles.includes('admin');
}
