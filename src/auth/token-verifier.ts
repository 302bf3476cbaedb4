import {
  createRemoteJWKSet,
  customFetch,
  decodeJwt,
  errors,
  jwtVerify,
  type JWTPayload,
  type RemoteJWKSet,
} from 'jose';
import type { Logger } from 'pino';
import { z } from 'zod';
import type { Config } from '../config.ts';
import { createAgent, createFetch } from '../lib/guarded-fetch.ts';
import type { Caller } from './rights.ts';

type OidcConfig = NonNullable<Config['oidc']>;

interface TokenIssuerOptions {
  oidc: OidcConfig;
  log: Logger;
  /** A key that is not known lets the issuer be asked again, this long after the last time. */
  cooldownMs?: number;
}

/** A token of the issuer's that does not let its bearer in; the message says why. */
export class TokenRefusedError extends Error {
  static {
    this.prototype.name = 'TokenRefusedError';
  }
}

/** The issuer can't be asked for its keys, so nobody knows whether a token is good. */
export class IssuerUnavailableError extends Error {
  static {
    this.prototype.name = 'IssuerUnavailableError';
  }
}

/** Never one whose key is a shared secret: our copy of the issuer's public key would be the secret. */
const ALGORITHMS = 'RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA Ed25519'.split(' ');

const CLOCK_TOLERANCE_SECONDS = 30;
const COOLDOWN_MS = 10_000;
const FETCH_MS = 5_000;

/** Metadata and keys take some KiB. */
const boundedFetch = createFetch(createAgent({ connectTimeoutMs: FETCH_MS }), { maxBytes: 1024 * 1024 });

/** Keys that are older are fetched again, beside the requests that use them... */
const REFRESH_MS = 10 * 60_000;
/** ... and while that fails the old ones are good for this long. */
const MAX_AGE_MS = 24 * 3_600_000;

/** Nobody waits again for an issuer that has just failed. */
const AFTER_FAILURE_MS = 2_000;

/** Who has a token, and until when it is good here: milliseconds since 1970. */
export interface Bearer {
  caller: Caller;
  expiresAt: number;
}

/**
 * OpenID Connect Core 1.0, section 2. More is refused than the rule says: two values that the catalog could not tell apart
 * (lone surrogates) would be one subject.
 */
const subjectClaim = z
  .string()
  .regex(/^\P{Cc}{1,255}$/u)
  .refine((sub) => sub.isWellFormed());

const discovery = z.object({ issuer: z.string(), jwks_uri: z.url({ protocol: /^https?$/ }) });

/** The OpenID Connect provider whose access tokens let people in. */
export class TokenIssuer {
  readonly #oidc: OidcConfig;
  readonly #log: Logger;
  readonly #cooldownMs: number;
  #keys: Promise<RemoteJWKSet> | undefined;
  #refreshAt = 0;
  #failure: { error: IssuerUnavailableError; until: number } | undefined;

  constructor({ oidc, log, cooldownMs = COOLDOWN_MS }: TokenIssuerOptions) {
    this.#oidc = oidc;
    this.#log = log;
    this.#cooldownMs = cooldownMs;
  }

  /**
   * Whose token it is; undefined if it is not one of this issuer.
   * @throws TokenRefusedError, IssuerUnavailableError
   */
  async identify(token: string): Promise<Bearer | undefined> {
    const { issuer, audience } = this.#oidc;
    if (issuerOf(token) !== issuer) return undefined;
    const keys = await this.#current();
    try {
      const { payload } = await jwtVerify(token, keys, {
        issuer,
        audience,
        algorithms: ALGORITHMS,
        clockTolerance: CLOCK_TOLERANCE_SECONDS,
        requiredClaims: ['sub', 'exp'],
      });
      // It is one of the required claims.
      const expiresAt = ((payload.exp ?? 0) + CLOCK_TOLERANCE_SECONDS) * 1000;
      return { caller: this.#callerOf(payload), expiresAt };
    } catch (error) {
      const reason = refusalOf(error);
      if (reason) throw new TokenRefusedError(reason, { cause: error });
      throw this.#failed(error);
    }
  }

  async #current(): Promise<RemoteJWKSet> {
    if (!this.#keys && this.#failure && Date.now() < this.#failure.until) throw this.#failure.error;
    this.#keys ??= this.#discover();
    try {
      const keys = await this.#keys;
      this.#refresh(keys);
      return keys;
    } catch (error) {
      this.#keys = undefined;
      throw this.#failed(error);
    }
  }

  async #discover(): Promise<RemoteJWKSet> {
    const { issuer } = this.#oidc;
    const url = `${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`;
    const response = await boundedFetch(url, { signal: AbortSignal.timeout(FETCH_MS), redirect: 'error' });
    if (!response.ok) throw new Error(`${url} answers with HTTP ${response.status}`);
    const found = discovery.parse(await response.json());
    // OpenID Connect Discovery 4.3: or another provider could stand in for ours.
    if (found.issuer !== issuer) throw new Error(`${url} is of the issuer ${found.issuer}`);
    const keys = createRemoteJWKSet(new URL(found.jwks_uri), {
      cooldownDuration: this.#cooldownMs,
      cacheMaxAge: MAX_AGE_MS,
      timeoutDuration: FETCH_MS,
      [customFetch]: boundedFetch,
    });
    await keys.reload();
    this.#refreshAt = Date.now() + REFRESH_MS;
    return keys;
  }

  #refresh(keys: RemoteJWKSet): void {
    if (Date.now() < this.#refreshAt) return;
    this.#refreshAt = Date.now() + REFRESH_MS;
    keys.reload().catch((error: unknown) => {
      this.#refreshAt = Date.now() + COOLDOWN_MS;
      this.#log.warn({ err: error }, 'the keys of the OIDC issuer can not be fetched again; the old ones are used');
    });
  }

  #failed(cause: unknown): IssuerUnavailableError {
    if (cause instanceof IssuerUnavailableError) return cause;
    const error = new IssuerUnavailableError(`the OIDC issuer ${this.#oidc.issuer} can not be asked`, { cause });
    this.#failure = { error, until: Date.now() + AFTER_FAILURE_MS };
    this.#log.warn({ err: error }, 'tokens can not be judged');
    return error;
  }

  #callerOf(payload: JWTPayload): Caller {
    const { issuer, nameClaim, roleClaim, roles } = this.#oidc;
    const sub = subjectOf(payload);
    const held = valuesOf(claimOf(payload, roleClaim)).flatMap((value) => roles.get(value) ?? []);
    return {
      subject: {
        subjectId: `${issuer}#${sub}`,
        subjectType: 'user',
        subjectSlug: slugOf(claimOf(payload, nameClaim)) || slugOf(sub),
      },
      roles: held.length > 0 ? [...new Set(held)] : ['user'],
    };
  }
}

/** Who a token says that it is from, true or not; undefined for what is no token. */
function issuerOf(token: string): string | undefined {
  try {
    return decodeJwt(token).iss;
  } catch {
    return undefined;
  }
}

/** What a token is refused for; undefined if it could not even be judged. */
function refusalOf(error: unknown): string | undefined {
  if (error instanceof errors.JWTExpired) return 'the token has expired';
  if (error instanceof errors.JWTClaimValidationFailed) return `the token can not be used here: ${error.message}`;
  const isInvalid = [
    errors.JWSInvalid,
    errors.JWTInvalid,
    errors.JWSSignatureVerificationFailed,
    errors.JWKSNoMatchingKey,
    errors.JWKSMultipleMatchingKeys,
    errors.JOSEAlgNotAllowed,
    errors.JOSENotSupported,
  ].some((type) => error instanceof type);
  return isInvalid ? 'the token is not valid: it is not signed by a key of the issuer' : undefined;
}

/** @throws errors.JWTClaimValidationFailed */
function subjectOf(payload: JWTPayload): string {
  const { data, success } = subjectClaim.safeParse(payload.sub);
  if (success) return data;
  const rule = '"sub" claim must be a string of 1 to 255 characters without control characters';
  throw new errors.JWTClaimValidationFailed(rule, payload, 'sub', 'invalid');
}

/** A claim by its name, or by its path through objects (`realm_access.roles`). Names may have dots, such as URLs. */
function claimOf(payload: JWTPayload, name: string): unknown {
  if (name in payload) return payload[name];
  let value: unknown = payload;
  for (const part of name.split('.')) {
    if (typeof value !== 'object' || value === null) return undefined;
    value = Object.getOwnPropertyDescriptor(value, part)?.value;
  }
  return value;
}

/** What a claim lists: as a list, or as words. */
function valuesOf(claim: unknown): unknown[] {
  if (Array.isArray(claim)) return claim;
  return typeof claim === 'string' ? claim.split(' ') : [];
}

/**
 * A name as people see it, in the bounds that the catalog has for it, without characters that break lines or reverse the
 * text around them. Empty if the claim is no name.
 */
function slugOf(name: unknown): string {
  if (typeof name !== 'string') return '';
  return name
    .replaceAll(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu, '')
    .slice(0, 256)
    .replace(/[\ud800-\udbff]$/, '')
    .toWellFormed();
}
