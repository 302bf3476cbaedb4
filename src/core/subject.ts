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

/**
 * Valid names of API keys, which are the ids of their subjects. None has a `#`, so that it is never the id of a token's
 * subject.
 */
export const SUBJECT_NAME = /^[\w.@-]{1,128}$/;

/** The id of the subject of a token: providers guarantee that no other subject of theirs has the `sub`. */
export function tokenSubjectId(issuer: string, sub: string): string {
  return `${issuer}#${sub}`;
}

/** Whether an id is one that the subject of a token of the issuer may have. */
export function isTokenSubjectId(subjectId: string, issuer: string): boolean {
  const prefix = tokenSubjectId(issuer, '');
  return subjectId.startsWith(prefix) && subjectId.length > prefix.length;
}

/** The subject of the API key with this name. */
export function subjectNamed(name: string): Subject {
  return { subjectId: name, subjectType: 'user', subjectSlug: name };
}
