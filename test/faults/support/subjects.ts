import { randomBytes } from 'node:crypto';
import { subjectNamed, type Role } from '../../../src/core/subject.ts';

/** A subject with its own key, and with a secret that the others must not see. */
export interface Subject {
  id: string;
  role: Role;
  key: string;
  /** Part of what the subject says, and of what models and tools say to it. */
  secret: string;
}

function subject(name: string, role: Role): Subject {
  const random = randomBytes(8).toString('hex');
  return { id: subjectNamed(name).subjectId, role, key: `key-${random}`, secret: `secret-${name}-${random}` };
}

/** Writes the agents, and reads the sessions of all subjects. */
export const OPERATOR = subject('operator', 'admin');

/** The sessions of a world belong to them alternately. */
export const SUBJECTS: readonly [Subject, Subject] = [subject('ann', 'user'), subject('bob', 'user')];

/** Makes noise beside them. */
export const NOISY = subject('eve', 'user');

/** They decide on calls in the sessions of all subjects, and have none. */
export const APPROVERS: readonly [Subject, Subject] = [subject('cleo', 'approver'), subject('dan', 'approver')];

/** For `EVERTURN_API_KEYS`. */
export const API_KEYS = [OPERATOR, ...SUBJECTS, NOISY, ...APPROVERS]
  .map(({ id, role, key }) => `${id}:${role}=${key}`)
  .join();
