import type { Request, Response } from 'express';
import type { Keyring } from '../auth/keyring.ts';
import type { Caller } from '../auth/rights.ts';
import { ApiError } from './errors.ts';
import type { KeyGuesses } from './key-guesses.ts';

/** Everybody, on a server without keys. */
export const LOCAL: Caller = {
  subject: { subjectId: 'local', subjectType: 'user', subjectSlug: 'local' },
  roles: ['admin'],
};

/** How long a stream goes on after its key has ended. */
const RECHECK_MS = 5_000;

interface Gate {
  keyring: Keyring;
  guesses: KeyGuesses;
}

/** Whose request it is. @throws ApiError `unauthenticated`, or `rate_limited` if too many keys were tried */
export async function authenticate(request: Request, response: Response, { keyring, guesses }: Gate): Promise<Caller> {
  if (keyring.isKeyless) return LOCAL;
  const key = bearer(request);
  if (!key) throw new ApiError('unauthenticated', 'send your API key: Authorization: Bearer <key>');
  await guesses.check(request, key);
  const found = await keyring.find(key);
  if (!found) {
    await guesses.wrong(request, response);
    throw new ApiError('unauthenticated', 'the API key is not known here');
  }
  if ('ended' in found) throw new ApiError('unauthenticated', `the API key ${found.ended}: get a new one`);
  guesses.right(request, key);
  return found.caller;
}

/** Cuts off an answer that is still on its way when its key has ended: a stream may take days. */
export function cutOffWithKey(request: Request, response: Response, keyring: Keyring): void {
  const key = bearer(request);
  if (keyring.isKeyless || !key) return;
  const watch = setInterval(() => {
    // A catalog that is away says nothing about the key.
    keyring.find(key).then(
      (found) => {
        if (!found || 'ended' in found) response.destroy();
      },
      () => undefined,
    );
  }, RECHECK_MS).unref();
  response.once('close', () => clearInterval(watch));
}

function bearer({ headers }: Request): string | undefined {
  return /^Bearer +(\S+) *$/i.exec(headers.authorization ?? '')?.[1];
}
