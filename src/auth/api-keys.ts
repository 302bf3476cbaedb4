import { LRUCache } from 'lru-cache';
import type { Logger } from 'pino';
import type { KernelCatalog } from '../catalog/catalog.ts';
import type { KeyRow } from '../catalog/schema.ts';
import type { Config } from '../config.ts';
import type { BearerRoles } from '../catalog/subject-roles.ts';
import { mayOnServer, type ServerAction } from './rights.ts';
import { KeyLookups } from './key-lookups.ts';
import type { Bearer } from './token-verifier.ts';
import { isTokenSubjectId, subjectNamed, type Caller, type Role } from '../core/subject.ts';
import { randomBytes } from 'node:crypto';
import { sha256 } from '../lib/hash.ts';

/** How long a process caches a key, and therefore how long a revoked key may still work. */
const CACHE_TTL_MS = 2_000;

/** How often a server without keys checks whether one was created. */
const KEYLESS_CHECK_INTERVAL_MS = 2_000;

/** The last use of a key, and a token with the roles that are recorded already, are recorded at most this often. */
const RECORD_USE_INTERVAL_MS = 60_000;
const MAX_CACHED_KEYS = 10_000;

/** The caller of each request on a server without keys. */
export const LOCAL: Caller = { subject: subjectNamed('local'), roles: ['admin'] };

/** Resolves `performance` at each call, so that tests can freeze the time. */
const perf = { now: () => performance.now() };

/** The caller whose key it is, or why the key no longer works. */
export type FoundKey = { caller: Caller } | { ended: 'was revoked' | 'has expired' };

interface KeyringOptions {
  catalog: Pick<KernelCatalog, 'keys' | 'subjectRoles'>;
  config: Pick<Config, 'apiKeys' | 'oidc'>;
  log: Logger;
}

/** The API keys: those of the configuration, and those of the catalog, which may be created and revoked at any time. */
export class Keyring {
  readonly #catalog: KeyringOptions['catalog'];
  readonly #log: Logger;
  readonly #configured: ReadonlyMap<string, Caller>;
  readonly #lookups: KeyLookups;
  readonly #found = new LRUCache<string, KeyRow>({ max: MAX_CACHED_KEYS, ttl: CACHE_TTL_MS, perf });
  readonly #recentlyRecorded = new LRUCache<string, true>({ max: MAX_CACHED_KEYS, ttl: RECORD_USE_INTERVAL_MS, perf });
  /** The newest token of each bearer that was recorded. */
  readonly #bearers = new LRUCache<string, BearerRoles>({ max: MAX_CACHED_KEYS });
  readonly #tokenIssuer: string | undefined;
  #isKeyless: boolean;
  #watch: NodeJS.Timeout | undefined;

  private constructor({ catalog, config, log }: KeyringOptions, isKeyless: boolean) {
    this.#catalog = catalog;
    this.#log = log;
    this.#configured = new Map(config.apiKeys.map(({ key, caller }) => [hashOfKey(key), caller]));
    this.#lookups = new KeyLookups(catalog.keys);
    this.#tokenIssuer = config.oidc?.issuer;
    this.#isKeyless = isKeyless;
    if (isKeyless) this.#watch = setInterval(() => void this.#checkForKeys(), KEYLESS_CHECK_INTERVAL_MS).unref();
  }

  static async open(options: KeyringOptions): Promise<Keyring> {
    const { catalog, config } = options;
    const isUnconfigured = config.apiKeys.length === 0 && !config.oidc;
    return new Keyring(options, isUnconfigured && !(await catalog.keys.any()));
  }

  /**
   * Whether requests need no key. Stays false once a key was created, even if all are revoked: revoking the last key
   * must not open the server to everyone.
   */
  get isKeyless(): boolean {
    return this.#isKeyless;
  }

  /** Looks a key up; undefined if it is unknown. */
  async find(key: string): Promise<FoundKey | undefined> {
    const hash = hashOfKey(key);
    const configured = this.#configured.get(hash);
    if (configured) return { caller: configured };
    const row = this.#found.get(hash) ?? (await this.#lookUp(hash));
    if (!row) return undefined;
    const now = new Date();
    if (row.revoked_at !== null) return { ended: 'was revoked' };
    if (row.expires_at !== null && row.expires_at <= now.toISOString()) return { ended: 'has expired' };
    this.#recordUse(row.id, now);
    return { caller: callerOf(row) };
  }

  /**
   * The current roles of an earlier caller, by the credential that authenticated it, not by other credentials of its
   * subject; none if that credential is no longer valid. A configured key is identified by its name and role, so that
   * it can be replaced by another one. A bearer of the issuer's tokens has the roles in the newest of its tokens, since
   * only tokens contain them. The earlier roles still count where none are recorded: for a bearer without a recorded
   * token, and on a server without keys.
   */
  async rolesNow({ subject: { subjectId }, roles, keyId }: Caller): Promise<readonly Role[]> {
    if (keyId !== undefined) {
      const row = await this.#catalog.keys.get(keyId);
      return row && isWorking(row, new Date().toISOString()) ? [row.role] : [];
    }
    if (this.#isKeyless) return roles;
    if (this.#isBearer(subjectId)) return (await this.#catalog.subjectRoles.get(subjectId)) ?? roles;
    const configured = [...this.#configured.values()].filter(({ subject }) => subject.subjectId === subjectId);
    return roles.filter((role) => configured.some((caller) => caller.roles.includes(role)));
  }

  /** Records the roles that a token gives to its bearer. Not awaited, as the use of a key. */
  recordBearer({ caller: { subject, roles }, issuedAt }: Pick<Bearer, 'caller' | 'issuedAt'>): void {
    const { subjectId } = subject;
    const stated = { subjectId, roles, issuedAt: new Date(issuedAt).toISOString() };
    const known = this.#bearers.get(subjectId);
    if (known) {
      const newerMs = issuedAt - Date.parse(known.issuedAt);
      const hasSameRoles = known.roles.join() === roles.join();
      if (newerMs < 0 || (hasSameRoles && newerMs < RECORD_USE_INTERVAL_MS)) return;
    }
    this.#bearers.set(subjectId, stated);
    this.#catalog.subjectRoles.record(stated).catch((error: unknown) => {
      // The next request of the bearer tries again.
      this.#bearers.delete(subjectId);
      this.#log.debug({ err: error }, 'recording the roles of a bearer failed');
    });
  }

  /** Describes who has access, for the log and the CLI. */
  async names(): Promise<string[]> {
    const working = await this.#workingKeys();
    const names = [...this.#configured.values()].map(({ subject }) => subject.subjectSlug);
    const tokens = this.#tokenIssuer === undefined ? [] : [`bearers of a token from ${this.#tokenIssuer}`];
    return [...new Set([...names, ...working.map(({ name }) => name), ...tokens])];
  }

  /** The subjects that have a working key, with their roles. */
  async rolesById(): Promise<Map<string, Set<Role>>> {
    const roles = new Map<string, Set<Role>>();
    for (const { subject, roles: own } of await this.#callers()) {
      roles.set(subject.subjectId, new Set([...(roles.get(subject.subjectId) ?? []), ...own]));
    }
    return roles;
  }

  /**
   * Whether a subject, of which only the id is known, has a right on the server now: each of its credentials has to
   * give it, since it is not known which one the subject has used.
   */
  async mayOnServer(subjectId: string, action: ServerAction): Promise<boolean> {
    const said = this.#isBearer(subjectId) ? await this.#catalog.subjectRoles.get(subjectId) : undefined;
    const own = (await this.#callers())
      .filter(({ subject }) => subject.subjectId === subjectId)
      .map(({ roles }) => roles);
    const all = said ? [...own, said] : own;
    return all.length > 0 && all.every((roles) => mayOnServer({ subject: subjectNamed(subjectId), roles }, action));
  }

  close(): void {
    clearInterval(this.#watch);
  }

  /** Whether the subject is a bearer of the issuer's tokens. */
  #isBearer(subjectId: string): boolean {
    return this.#tokenIssuer !== undefined && isTokenSubjectId(subjectId, this.#tokenIssuer);
  }

  async #workingKeys(): Promise<KeyRow[]> {
    const now = new Date().toISOString();
    return (await this.#catalog.keys.list()).filter((row) => isWorking(row, now));
  }

  /** All callers that have access by a key, or without one. */
  async #callers(): Promise<Caller[]> {
    const rows = await this.#workingKeys();
    return this.#isKeyless ? [LOCAL] : [...this.#configured.values(), ...rows.map(callerOf)];
  }

  /** Unknown keys are not cached, so that a key works as soon as it is created. */
  async #lookUp(hash: string): Promise<KeyRow | undefined> {
    const row = await this.#lookups.find(hash);
    if (row) this.#found.set(hash, row);
    return row;
  }

  async #checkForKeys(): Promise<void> {
    try {
      if (!(await this.#catalog.keys.any())) return;
      this.#isKeyless = false;
      this.close();
      this.#log.info('an API key was created: requests need a key from now on');
    } catch (error) {
      this.#log.debug({ err: error }, 'checking the catalog for API keys failed');
    }
  }

  /** Not awaited: a request must neither wait for this nor fail with it. */
  #recordUse(id: string, now: Date): void {
    if (this.#recentlyRecorded.has(id)) return;
    this.#recentlyRecorded.set(id, true);
    this.#catalog.keys
      .recordUse(id, now.toISOString(), new Date(now.getTime() - RECORD_USE_INTERVAL_MS).toISOString())
      .catch((error: unknown) => this.#log.debug({ err: error }, 'recording the use of a key failed'));
  }
}

function isWorking({ revoked_at: revokedAt, expires_at: expiresAt }: KeyRow, now: string): boolean {
  return revokedAt === null && (expiresAt === null || expiresAt > now);
}

function callerOf({ id, name, role }: KeyRow): Caller {
  return { subject: subjectNamed(name), roles: [role], keyId: id };
}

/** Lets people and secret scanners recognize a key. */
const PREFIX = 'everturn_';

/** Creates a key: a prefix and 256 random bits, `everturn_[0-9a-f]{64}`. */
export function newApiKey(): string {
  return PREFIX + randomBytes(32).toString('hex');
}

/**
 * The stored form of a key. One round of SHA-256 suffices: slow hashes such as bcrypt protect passwords that can be
 * guessed, and 256 random bits cannot. A slow hash would only slow down each request.
 */
export function hashOfKey(key: string): string {
  return sha256(key);
}
