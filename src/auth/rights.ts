import { ROLES, type Caller, type Role } from '../core/subject.ts';

/** What can be done to a session, and how that is called. */
const SESSION_ACTIONS = {
  read: 'read',
  /** A turn of anything but decisions. */
  send: 'send messages',
  /** A turn of nothing but `user.tool_approval` items. */
  decide: 'decide on tool calls',
  /** The agent of a draft. */
  edit: 'change the agent',
  cancel: 'cancel',
  delete: 'delete',
} as const;

const SERVER_ACTIONS = {
  createSessions: 'create sessions',
  writeAgents: 'write and delete agents',
  readMetrics: 'read the metrics',
} as const;

export type SessionAction = keyof typeof SESSION_ACTIONS;
export type ServerAction = keyof typeof SERVER_ACTIONS;

const EVERYTHING: readonly SessionAction[] = ['read', 'send', 'decide', 'edit', 'cancel', 'delete'];

/** All rights there are: on sessions of one's own, on those of others, and on the server. */
const RIGHTS: Record<
  Role,
  { own: readonly SessionAction[]; others: readonly SessionAction[]; server: readonly ServerAction[] }
> = {
  admin: {
    own: EVERYTHING,
    others: ['read', 'cancel', 'delete'],
    server: ['createSessions', 'writeAgents', 'readMetrics'],
  },
  user: { own: EVERYTHING, others: [], server: ['createSessions'] },
  approver: { own: ['read', 'decide'], others: ['read', 'decide'], server: [] },
};

/** A session, as far as rights go. */
interface Owned {
  subject_id: string;
}

export function isOwn({ subject }: Caller, session: Owned): boolean {
  return session.subject_id === subject.subjectId;
}

/** Whether the caller may do this to the session. */
export function mayOnSession(caller: Caller, session: Owned, action: SessionAction): boolean {
  const whose = isOwn(caller, session) ? 'own' : 'others';
  return caller.roles.some((role) => RIGHTS[role][whose].includes(action));
}

/** Whether the sessions of others exist for the caller. */
export function mayReadAll({ roles }: Caller): boolean {
  return roles.some((role) => RIGHTS[role].others.includes('read'));
}

export function mayOnServer({ roles }: Caller, action: ServerAction): boolean {
  return roles.some((role) => RIGHTS[role].server.includes(action));
}

/** Why the caller may not do this to a session that it may read: for the caller to read. */
export function refusalOnSession(caller: Caller, session: Owned, action: SessionAction): string {
  const whose = isOwn(caller, session) ? 'own' : 'others';
  const rights = EVERYTHING.filter((other) => mayOnSession(caller, session, other)).map((one) => SESSION_ACTIONS[one]);
  const where = whose === 'own' ? 'in your session' : "in somebody else's session";
  return `with the role ${caller.roles.join(', ')} you can not ${SESSION_ACTIONS[action]} ${where}; you may: ${rights.join(', ')}`;
}

/** Why the caller may not do this: for the caller to read. */
export function refusalOnServer({ roles }: Caller, action: ServerAction): string {
  const able = ROLES.filter((role) => RIGHTS[role].server.includes(action));
  return `with the role ${roles.join(', ')} you can not ${SERVER_ACTIONS[action]}: that takes the role ${able.join(' or ')}`;
}
