import type { Request, Response } from 'express';
import { LOCAL } from '../../auth/api-keys.ts';
import { subjectNamed, type Caller } from '../../core/subject.ts';
import { IssuerUnavailableError, TokenRefusedError } from '../../auth/token-verifier.ts';
import type { ApiContext } from './context.ts';
import { ApiError } from './errors.ts';
import type { RequestLimit } from './rate-limit.ts';

/** The caller of a request without a key, which may read shared sessions only. */
export const ANONYMOUS: Caller = { subject: subjectNamed('anonymous'), roles: [] };

/** How often an open response checks its key or token: a stream ends at most this long after its key was revoked. */
const RECHECK_INTERVAL_MS = 5_000;

type Credentials = Pick<ApiContext, 'keyring' | 'issuer'> & { unknownKeys: RequestLimit };

/**
 * Authenticates a request by its API key or token.
 * @throws ApiError `unauthenticated`; `unavailable` if a token cannot be verified; `rate_limited` beyond the limit of
 *   unknown keys, to which forged tokens count
 */
export async function authenticate(
  request: Request,
  response: Response,
  { keyring, issuer, unknownKeys }: Credentials,
): Promise<Caller> {
  if (keyring.isKeyless) return LOCAL;
  const [, credential] = /^Bearer +(\S+) *$/i.exec(request.headers.authorization ?? '') ?? [];
  if (!credential) throw new ApiError('unauthenticated', 'send your API key: Authorization: Bearer <key>');
  return (await callerOfToken(credential)) ?? callerOfKey(credential);

  async function callerOfToken(token: string): Promise<Caller | undefined> {
    try {
      const bearer = await issuer?.identify(token);
      if (!bearer) return undefined;
      const { caller, expiresAt } = bearer;
      keyring.recordBearer(bearer);
      destroyOnceExpired(response, async () => Date.now() > expiresAt);
      return caller;
    } catch (error) {
      if (error instanceof TokenRefusedError) {
        if (error.isForged) await unknownKeys(request, response);
        throw new ApiError('unauthenticated', error.message, { cause: error });
      }
      if (!(error instanceof IssuerUnavailableError)) throw error;
      throw new ApiError('unavailable', 'your token cannot be verified at the moment: retry', { cause: error });
    }
  }

  async function callerOfKey(key: string): Promise<Caller> {
    const found = await keyring.find(key);
    if (!found) {
      await unknownKeys(request, response);
      throw new ApiError('unauthenticated', 'the API key is unknown');
    }
    if ('ended' in found) throw new ApiError('unauthenticated', `the API key ${found.ended}: get a new one`);
    destroyOnceExpired(response, async () => {
      const current = await keyring.find(key);
      return !current || 'ended' in current;
    });
    return found.caller;
  }
}

/** Destroys a response that is still open when its key or token has expired or was revoked: a stream may take days. */
function destroyOnceExpired(response: Response, hasExpired: () => Promise<boolean>): void {
  // The client hung up in the meantime: no further `close` event follows.
  if (response.closed) return;
  const timer = setInterval(() => {
    hasExpired().then(
      (isExpired) => {
        if (isExpired) response.destroy();
      },
      // While the catalog is unavailable, the key counts as valid.
      () => undefined,
    );
  }, RECHECK_INTERVAL_MS).unref();
  response.once('close', () => clearInterval(timer));
}
