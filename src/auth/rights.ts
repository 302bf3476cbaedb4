import type { BudgetReport } from '../core/budget.ts';
import type { PendingCall } from '../core/records/pending.ts';
import { ROLES, type Caller, type Role } from '../core/subject.ts';

/** The actions on a session, and their names in error messages. */
const SESSION_ACTIONS = {
  read: 'read',
  /** A turn with any input beside decisions. */
  send: 'send messages',
  /** A turn with nothing but `user.tool_approval` items. */
  decide: 'decide on tool calls',
  /** Changing the agent of a draft. */
  edit: 'change the agent',
  cancel: 'cancel',
  delete: 'delete',
} as const;

const SERVER_ACTIONS = {
  createSessions: 'create sessions',
  writeAgents: 'write and delete agents, skills and environments',
  readMetrics: 'read the metrics',
  checkMcpServers: 'check the MCP servers',
  readKernels: 'read the kernel hosts',
  manageWebhooks: 'manage webhooks',
  raiseBudgets: 'raise the budgets of subjects',
} as const;

export type SessionAction = keyof typeof SESSION_ACTIONS;
export type ServerAction = keyof typeof SERVER_ACTIONS;

const EVERYTHING: readonly SessionAction[] = ['read', 'send', 'decide', 'edit', 'cancel', 'delete'];

/** All rights: on the caller's own sessions, on those of other subjects, and on the server. */
const RIGHTS: Record<
  Role,
  { own: readonly SessionAction[]; others: readonly SessionAction[]; server: readonly ServerAction[] }
> = {
  admin: {
    own: EVERYTHING,
    others: ['read', 'cancel', 'delete'],
    server: [
      'createSessions',
      'writeAgents',
      'readMetrics',
      'checkMcpServers',
      'readKernels',
      'manageWebhooks',
      'raiseBudgets',
    ],
  },
  user: { own: EVERYTHING, others: [], server: ['createSessions'] },
  approver: { own: ['read', 'decide'], others: ['read', 'decide'], server: [] },
};

/** The part of a session that determines rights. */
interface Owned {
  subject_id: string;
}

export function isOwn({ subject }: Caller, session: Owned): boolean {
  return session.subject_id === subject.subjectId;
}

/** For whom a view of a session is made. */
export interface Reader {
  /** Other readers get nothing that acts as the owner of the session, or that names an account of the owner. */
  isOwner: boolean;
}

export function readerOf(caller: Caller, session: Owned): Reader {
  return { isOwner: isOwn(caller, session) };
}

/** Whether the caller may do this to the session. */
export function mayOnSession(caller: Caller, session: Owned, action: SessionAction): boolean {
  const whose = isOwn(caller, session) ? 'own' : 'others';
  return caller.roles.some((role) => RIGHTS[role][whose].includes(action));
}

/** Whether the caller may see the sessions of other subjects. */
export function mayReadAll({ roles }: Caller): boolean {
  return roles.some((role) => RIGHTS[role].others.includes('read'));
}

export function mayOnServer({ roles }: Caller, action: ServerAction): boolean {
  return roles.some((role) => RIGHTS[role].server.includes(action));
}

/** The error message for a caller that may read the session but lacks the right to this action. */
export function refusalOnSession(caller: Caller, session: Owned, action: SessionAction): string {
  const whose = isOwn(caller, session) ? 'own' : 'others';
  const rights = EVERYTHING.filter((other) => mayOnSession(caller, session, other)).map((one) => SESSION_ACTIONS[one]);
  const where = whose === 'own' ? 'in your session' : "in another subject's session";
  const what = `${SESSION_ACTIONS[action]} ${where}`;
  return `with the role ${caller.roles.join(', ')} you cannot ${what}; you may: ${rights.join(', ')}`;
}

/** The error message for a caller that lacks the right to this action on the server. */
export function refusalOnServer({ roles }: Caller, action: ServerAction): string {
  const allowed = ROLES.filter((role) => RIGHTS[role].server.includes(action));
  const what = SERVER_ACTIONS[action];
  return `with the role ${roles.join(', ')} you cannot ${what}: this requires the role ${allowed.join(' or ')}`;
}

/**
 * The groups of callers that may answer a call of a subject's session, with the subjects that are excluded, and the groups
 * that may, too, once it is escalated.
 * The index of actions has them as columns; a caller may answer if it is in one of them: see `groupsOf`.
 */
export function decidersFor(
  {
    needs,
    policy,
    requesters = [],
    unknownOutcome,
  }: Pick<PendingCall, 'needs' | 'policy' | 'requesters' | 'unknownOutcome'>,
  subjectId: string,
): { audience: string[]; escalatedTo: string[] } {
  const responders = needs === 'response' ? allowedTo('send', subjectId) : [];
  // Responders state the outcome; approvers decide whether the call runs again.
  if (needs === 'response' && unknownOutcome === undefined) return { audience: responders, escalatedTo: [] };
  const { approvers, escalate, excludeRequester } = policy ?? {};
  // A requester that may state the outcome has to see the call, so it is not excluded.
  const excluded = excludeRequester ? requesters.filter((id) => needs === 'approval' || id !== subjectId) : [];
  return {
    audience: [
      ...responders,
      ...(approvers ? named(approvers) : allowedTo('decide', subjectId)),
      ...excluded.map(excludedGroup),
    ],
    escalatedTo: escalate ? named(escalate.to) : [],
  };
}

/** The group of a subject in its own sessions, with any role: each role has the right to decide there. */
export function ownerGroup(subjectId: string): string {
  return `decide:${subjectId}`;
}

/** The groups of callers that may raise the budget for which a turn in a session of a subject is paused. */
export function raisersFor(subjectId: string, scope: BudgetReport['scope']): string[] {
  if (scope !== 'subject') return allowedTo('cancel', subjectId);
  return named({ subjects: [], roles: ROLES.filter((role) => RIGHTS[role].server.includes('raiseBudgets')) });
}

/** The groups that the caller belongs to. */
export function groupsOf({ subject, roles }: Caller): string[] {
  const onOwn = (['send', 'decide', 'cancel'] as const).filter((action) =>
    roles.some((role) => RIGHTS[role].own.includes(action)),
  );
  return [
    ...onOwn.map((action) => `${action}:${subject.subjectId}`),
    ...named({ subjects: [subject.subjectId], roles }),
  ];
}

/** The groups of the caller, as the index of actions has them. */
export function deciderOf(caller: Caller): { audiences: string[]; excluded: string } {
  return { audiences: groupsOf(caller), excluded: excludedGroup(caller.subject.subjectId) };
}

/** The group by which an action excludes a subject. It takes precedence over the subject's other groups. */
function excludedGroup(subjectId: string): string {
  return `excluded:${subjectId}`;
}

/** The groups with the right to an action in the sessions of a subject. */
function allowedTo(action: 'send' | 'decide' | 'cancel', subjectId: string): string[] {
  const roles = ROLES.filter((role) => RIGHTS[role].others.includes(action));
  return [`${action}:${subjectId}`, ...named({ subjects: [], roles })];
}

function named({ subjects, roles }: { subjects: readonly string[]; roles: readonly Role[] }): string[] {
  return [...subjects.map((id) => `subject:${id}`), ...roles.map((role) => `role:${role}`)];
}
