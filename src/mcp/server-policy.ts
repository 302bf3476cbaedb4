import { ROLES } from '../core/subject.ts';
import type { SessionOwner } from '../core/history.ts';

/** The operator's policy for a registered server. */
export interface ServerPolicy {
  /**
   * The authors whose drafts may use it: roles, and subjects as `subject:<id>`. Drafts of admins always may, because
   * admins write the agents of the registry.
   */
  drafts: readonly string[];
  /** The tools that agents may use: `@all`, `@read-only` or names. */
  tools: readonly string[];
  /**
   * The calls that need approval regardless of the agent: `@all`, `@write`, `@destructive`, `@unannotated` or names.
   * Undefined: none for agents written by an admin, who is trusted like the operator; for other authors' drafts, all
   * calls except those of read-only tools.
   */
  approval: readonly string[] | undefined;
}

/** For inline servers, which belong to the agent. */
export const NO_POLICY: ServerPolicy = { drafts: ROLES, tools: ['@all'], approval: [] };

/** Selects the calls that may change something, by the annotations of their tools. */
export const ALL_BUT_READ_ONLY = ['@write', '@destructive', '@unannotated'];

/** Whether the agent of a session may use the server. */
export function mayUse({ drafts }: ServerPolicy, owner: SessionOwner): boolean {
  if (isOfAdmin(owner) || drafts.includes(`subject:${owner.subjectId}`)) return true;
  return owner.draftRoles?.some((role) => drafts.includes(role)) === true;
}

/** The calls that need approval in a session, regardless of its agent. */
export function approvalFloor({ approval }: ServerPolicy, owner: SessionOwner): readonly string[] {
  return approval ?? (isOfAdmin(owner) ? [] : ALL_BUT_READ_ONLY);
}

/** Only admins write the agents of the registry. */
function isOfAdmin({ draftRoles }: SessionOwner): boolean {
  return draftRoles === null || draftRoles.includes('admin');
}
