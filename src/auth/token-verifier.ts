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
import { tokenSubjectId, type Caller } from '../core/subject.ts';
import { NamedError } from '../lib/errors.ts';

type OidcConfig = NonNullable<Config['oidc']>;

interface TokenIssuerOptions {
  oidc: OidcConfig;
  log: Logger;
  /** How long after the last fetch an unknown key id triggers another fetch of the issuer's keys. */
  cooldownMs?: number;
}

/** A token claims to be from the issuer but is not valid here; the message says why. */
export class TokenRefusedError extends NamedError {
  /** No key of the issuer has signed it: anyone can write one. */
  readonly isForged: boolean;

  constructor(message: string, { isForged, cause }: { isForged: boolean; cause: unknown }) {
    super(message, { cause });
    this.isForged = isForged;
  }
}

/** The issuer's keys cannot be fetched, so a token cannot be verified. */
export class IssuerUnavailableError extends NamedError {}

/** Asymmetric only: with a shared-secret algorithm, the issuer's public key would be accepted as the secret. */
const ALGORITHMS = 'RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA Ed25519'.split(' ');

const CLOCK_TOLERANCE_SECONDS = 30;
const COOLDOWN_MS = 10_000;
const FETCH_TIMEOUT_MS = 5_000;

/** Metadata and keys take a few KiB. */
const boundedFetch = createFetch(createAgent({ connectTimeoutMs: FETCH_TIMEOUT_MS }), { maxBytes: 1024 * 1024 });

/** Older keys are refreshed in the background, while requests continue to use them. */
const REFRESH_INTERVAL_MS = 10 * 60_000;
/** How long keys stay valid while refreshing them fails. */
const MAX_AGE_MS = 24 * 3_600_000;

/** How long the failure of the issuer is reported without trying again, so that requests do not wait for it. */
const FAILURE_TTL_MS = 2_000;

/** The bearer of a verified token. */
export interface Bearer {
  caller: Caller;
  /** When the token was issued, in milliseconds since 1970. */
  issuedAt: number;
  /** When the token stops being accepted, in milliseconds since 1970. */
  expiresAt: number;
}

/**
 * OpenID Connect Core 1.0, section 2. Stricter than the specification: lone surrogates are rejected, since the catalog
 * cannot distinguish two values that differ only in them, and their subjects would be one.
 */
const subjectClaim = z
  .string()
  .regex(/^\P{Cc}{1,255}$/u)
  .refine((sub) => sub.isWellFormed());

const discovery = z.object({ issuer: z.string(), jwks_uri: z.url({ protocol: /^https?$/ }) });

/** The OpenID Connect provider whose access tokens are accepted. */
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
   * Verifies a token; undefined if it does not claim to be from this issuer.
   * @throws TokenRefusedError, IssuerUnavailableError
   */
  async identify(token: string): Promise<Bearer | undefined> {
    const { issuer, audience } = this.#oidc;
    if (issuerOf(token) !== issuer) return undefined;
    const keys = await this.#currentKeys();
    try {
      const { payload } = await jwtVerify(token, keys, {
        issuer,
        audience,
        algorithms: ALGORITHMS,
        clockTolerance: CLOCK_TOLERANCE_SECONDS,
        requiredClaims: ['sub', 'exp'],
      });
      // `exp` is one of the required claims.
      const expiresAt = ((payload.exp ?? 0) + CLOCK_TOLERANCE_SECONDS) * 1000;
      // RFC 9068 requires `iat`; other tokens are as old as their use.
      const issuedAt = Math.min(Math.max((payload.iat ?? Infinity) * 1000, 0), Date.now());
      return { caller: this.#callerOf(payload), issuedAt, expiresAt };
    } catch (error) {
      throw refusalOf(error) ?? this.#failed(error);
    }
  }

  async #currentKeys(): Promise<RemoteJWKSet> {
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
    const response = await boundedFetch(url, { signal: AbortSignal.timeout(FETCH_TIMEOUT_MS), redirect: 'error' });
    if (!response.ok) throw new Error(`${url} responded with HTTP ${response.status}`);
    const found = discovery.parse(await response.json());
    // OpenID Connect Discovery 1.0, section 4.3: otherwise another provider could impersonate the configured one.
    if (found.issuer !== issuer) throw new Error(`${url} belongs to the issuer ${found.issuer}`);
    const keys = createRemoteJWKSet(new URL(found.jwks_uri), {
      cooldownDuration: this.#cooldownMs,
      cacheMaxAge: MAX_AGE_MS,
      timeoutDuration: FETCH_TIMEOUT_MS,
      [customFetch]: boundedFetch,
    });
    await keys.reload();
    this.#refreshAt = Date.now() + REFRESH_INTERVAL_MS;
    return keys;
  }

  #refresh(keys: RemoteJWKSet): void {
    if (Date.now() < this.#refreshAt) return;
    this.#refreshAt = Date.now() + REFRESH_INTERVAL_MS;
    keys.reload().catch((error: unknown) => {
      this.#refreshAt = Date.now() + COOLDOWN_MS;
      this.#log.warn({ err: error }, 'refreshing the keys of the OIDC issuer failed; the cached keys stay in use');
    });
  }

  #failed(cause: unknown): IssuerUnavailableError {
    if (cause instanceof IssuerUnavailableError) return cause;
    const error = new IssuerUnavailableError(`the OIDC issuer ${this.#oidc.issuer} is unavailable`, { cause });
    this.#failure = { error, until: Date.now() + FAILURE_TTL_MS };
    this.#log.warn({ err: error }, 'tokens cannot be verified');
    return error;
  }

  #callerOf(payload: JWTPayload): Caller {
    const { issuer, nameClaim, roleClaim, roles } = this.#oidc;
    const sub = subjectOf(payload);
    const granted = valuesOf(claimOf(payload, roleClaim)).flatMap((value) => roles.get(value) ?? []);
    return {
      subject: {
        subjectId: tokenSubjectId(issuer, sub),
        subjectType: 'user',
        subjectSlug: slugOf(claimOf(payload, nameClaim)) || slugOf(sub),
      },
      roles: granted.length > 0 ? [...new Set(granted)] : ['user'],
    };
  }
}

/** The issuer that a token claims, unverified; undefined if the text is not a token. */
function issuerOf(token: string): string | undefined {
  try {
    return decodeJwt(token).iss;
  } catch {
    return undefined;
  }
}

/** Undefined if the error does not concern the token. */
function refusalOf(cause: unknown): TokenRefusedError | undefined {
  // Claims are checked after the signature.
  const refused = (reason: string) => new TokenRefusedError(reason, { isForged: false, cause });
  if (cause instanceof errors.JWTExpired) return refused('the token has expired');
  if (cause instanceof errors.JWTClaimValidationFailed)
    return refused(`the token is not accepted here: ${cause.message}`);
  const isForged = [
    errors.JWSInvalid,
    errors.JWTInvalid,
    errors.JWSSignatureVerificationFailed,
    errors.JWKSNoMatchingKey,
    errors.JWKSMultipleMatchingKeys,
    errors.JOSEAlgNotAllowed,
    errors.JOSENotSupported,
  ].some((type) => cause instanceof type);
  if (!isForged) return undefined;
  return new TokenRefusedError('the token is not valid: it is not signed by a key of the issuer', { isForged, cause });
}

/** @throws errors.JWTClaimValidationFailed */
function subjectOf(payload: JWTPayload): string {
  const { data, success } = subjectClaim.safeParse(payload.sub);
  if (success) return data;
  const rule = '"sub" claim must be a string of 1 to 255 characters without control characters';
  throw new errors.JWTClaimValidationFailed(rule, payload, 'sub', 'invalid');
}

/** A claim by its name, or by its path through objects (`realm_access.roles`). Names may contain dots, as URLs do. */
function claimOf(payload: JWTPayload, name: string): unknown {
  if (name in payload) return payload[name];
  let value: unknown = payload;
  for (const part of name.split('.')) {
    if (typeof value !== 'object' || value === null) return undefined;
    value = Object.getOwnPropertyDescriptor(value, part)?.value;
  }
  return value;
}

/** The values of a claim that is an array, or a string of words. */
function valuesOf(claim: unknown): unknown[] {
  if (Array.isArray(claim)) return claim;
  return typeof claim === 'string' ? claim.split(' ') : [];
}

/**
 * A display name within the catalog's bounds, without characters that break lines or reverse the surrounding text.
 * Empty if the claim is not a name.
 */
function slugOf(name: unknown): string {
  if (typeof name !== 'string') return '';
  return name
    .replaceAll(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu, '')
    .slice(0, 256)
    .replace(/[\ud800-\udbff]$/, '')
    .toWellFormed();
}
