/** A person, or a machine with an API key: the creator of a session or a turn. */
export interface Subject {
  subjectId: string;
  subjectType: string;
  subjectSlug: string;
}

export const ROLES = ['admin', 'user', 'approver'] as const;

export type Role = (typeof ROLES)[number];

/** The sender of a request. */
export interface Caller {
  subject: Subject;
  /** The caller has the rights of each of them. */
  roles: readonly Role[];
  /** The key of the catalog by which it was authenticated; undefined: it has used none. */
  keyId?: string | undefined;
}

/** The subject of the API key with this name. */
export function subjectNamed(name: string): Subject {
  return { subjectId: name, subjectType: 'user', subjectSlug: name };
}
