import { timingSafeEqual } from 'node:crypto';
import type { Request } from 'express';
import type { Config } from '../config.ts';
import { sha256 } from '../hash.ts';
import type { Subject } from '../log/records.ts';
import { ApiError } from './errors.ts';

/** Everybody, on a server without keys. */
const LOCAL: Subject = { subjectId: 'local', subjectType: 'user', subjectSlug: 'local' };

/** Whose request it is. @throws ApiError `unauthenticated` */
export function authenticate(request: Request, apiKeys: Config['apiKeys']): Subject {
  if (apiKeys.length === 0) return LOCAL;
  const [, key] = /^Bearer +(\S+) *$/i.exec(request.headers.authorization ?? '') ?? [];
  if (!key) throw new ApiError('unauthenticated', 'send your API key: Authorization: Bearer <key>');
  const subject = apiKeys.find((known) => isSame(known.key, key))?.subject;
  if (!subject) throw new ApiError('unauthenticated', 'the API key is not known here');
  return subject;
}

/** Takes the same time whatever the keys have in common. */
function isSame(a: string, b: string): boolean {
  return timingSafeEqual(Buffer.from(sha256(a)), Buffer.from(sha256(b)));
}
