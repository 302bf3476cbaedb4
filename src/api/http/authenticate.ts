import type { Request, Response } from 'express';
import type { Keyring } from '../../auth/api-keys.ts';
import { subjectNamed, type Caller } from '../../core/subject.ts';
import { IssuerUnavailableError, TokenRefusedError, type TokenIssuer } from '../../auth/token-verifier.ts';
import { ApiError } from './errors.ts';
import type { UnknownKeyLimiter } from './unknown-key-limiter.ts';

/** Everybody, on a server without keys. */
export const LOCAL: Caller = { subject: subjectNamed('local'), roles: ['admin'] };

/** How long a stream goes on after its key or token has ended. */
const RECHECK_MS = 5_000;

interface Gate {
  keyring: Keyring;
  /** Whose tokens are good here, if anybody's. */
  issuer: TokenIssuer | undefined;
  guesses: UnknownKeyLimiter;
}

/**
 * Whose request it is, by its key or its token.
 * @throws ApiError `unauthenticated`; `unavailable` if a token can't be judged; `rate_limited` if too many unknown keys were tried
 */
export async function authenticate(request: Request, response: Response, gate: Gate): Promise<Caller> {
  if (gate.keyring.isKeyless) return LOCAL;
  const [, credential] = /^Bearer +(\S+) *$/i.exec(request.headers.authorization ?? '') ?? [];
  if (!credential) throw new ApiError('unauthenticated', 'send your API key: Authorization: Bearer <key>');
  return (await callerOfToken(response, gate, credential)) ?? callerOfKey(request, response, gate, credential);
}

async function callerOfToken(response: Response, { issuer }: Gate, token: string): Promise<Caller | undefined> {
  try {
    const bearer = await issuer?.identify(token);
    if (!bearer) return undefined;
    const { caller, expiresAt } = bearer;
    cutOffOnce(response, async () => Date.now() > expiresAt);
    return caller;
  } catch (error) {
    if (error instanceof TokenRefusedError) throw new ApiError('unauthenticated', error.message, { cause: error });
    if (!(error instanceof IssuerUnavailableError)) throw error;
    throw new ApiError('unavailable', 'your token can not be checked for the moment; try again', { cause: error });
  }
}

async function callerOfKey(
  request: Request,
  response: Response,
  { keyring, guesses }: Gate,
  key: string,
): Promise<Caller> {
  const found = await keyring.find(key);
  if (!found) {
    await guesses.count(request, response);
    throw new ApiError('unauthenticated', 'the API key is not known here');
  }
  if ('ended' in found) throw new ApiError('unauthenticated', `the API key ${found.ended}: get a new one`);
  cutOffOnce(response, async () => {
    const now = await keyring.find(key);
    return !now || 'ended' in now;
  });
  return found.caller;
}

/** Cuts off an answer that is still on its way when its key or token has ended: a stream may take days. */
function cutOffOnce(response: Response, hasEnded: () => Promise<boolean>): void {
  // Whoever has hung up meanwhile will not do so again.
  if (response.closed) return;
  const watch = setInterval(() => {
    // A catalog that is away says nothing about the key.
    hasEnded().then(
      (isEnded) => {
        if (isEnded) response.destroy();
      },
      () => undefined,
    );
  }, RECHECK_MS).unref();
  response.once('close', () => clearInterval(watch));
}
