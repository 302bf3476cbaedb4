import { randomBytes } from 'node:crypto';
import { subjectNamed, type Role } from '../../../src/core/subject.ts';

/** Somebody with a key of their own, and with something to hide from the others. */
export interface Subject {
  id: string;
  role: Role;
  key: string;
  /** Stands in what the subject says, and in what models and tools say to it. */
  secret: string;
}

function subject(name: string, role: Role): Subject {
  const random = randomBytes(8).toString('hex');
  return { id: subjectNamed(name).subjectId, role, key: `key-${random}`, secret: `secret-${name}-${random}` };
}

/** Writes the agents, and reads what is nobody else's business. */
export const OPERATOR = subject('operator', 'admin');

/** The sessions of a world are theirs in turns. */
export const SUBJECTS: readonly [Subject, Subject] = [subject('ann', 'user'), subject('bob', 'user')];

/** For `EVERTURN_API_KEYS`. */
export const API_KEYS = [OPERATOR, ...SUBJECTS].map(({ id, role, key }) => `${id}:${role}=${key}`).join();
