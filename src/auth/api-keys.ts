import { LRUCache } from 'lru-cache';
import type { Logger } from 'pino';
import type { Catalog } from '../catalog/catalog.ts';
import type { KeyRow } from '../catalog/schema.ts';
import type { Config } from '../config.ts';
import { KeyLookups } from './key-lookups.ts';
import { subjectNamed, type Caller } from '../core/subject.ts';
import { randomBytes } from 'node:crypto';
import { sha256 } from '../lib/hash.ts';

/** A revoked key works for at most this long in a process that has just used it. */
const TRUSTED_FOR_MS = 2_000;

/** How often a server without keys looks whether it has some now. */
const WATCH_MS = 2_000;

const NOTE_USE_MS = 60_000;
const MAX_REMEMBERED = 10_000;

/** Looked up when it is read, so that tests can hold it still. */
const perf = { now: () => performance.now() };

/** Whose key it is, or why it does not work any more. */
export type FoundKey = { caller: Caller } | { ended: 'was revoked' | 'has expired' };

interface KeyringOptions {
  catalog: Pick<Catalog, 'keys'>;
  config: Pick<Config, 'apiKeys' | 'oidc'>;
  log: Logger;
}

/** The API keys: those of the configuration, and those made by command, which may come and go while the server runs. */
export class Keyring {
  readonly #catalog: KeyringOptions['catalog'];
  readonly #log: Logger;
  readonly #configured: ReadonlyMap<string, Caller>;
  readonly #lookups: KeyLookups;
  readonly #found = new LRUCache<string, KeyRow>({ max: MAX_REMEMBERED, ttl: TRUSTED_FOR_MS, perf });
  readonly #noted = new LRUCache<string, true>({ max: MAX_REMEMBERED, ttl: NOTE_USE_MS, perf });
  readonly #tokensOf: string | undefined;
  #isKeyless: boolean;
  #watch: NodeJS.Timeout | undefined;

  private constructor({ catalog, config, log }: KeyringOptions, isKeyless: boolean) {
    this.#catalog = catalog;
    this.#log = log;
    this.#configured = new Map(config.apiKeys.map(({ key, caller }) => [hashOfKey(key), caller]));
    this.#lookups = new KeyLookups(catalog.keys);
    this.#tokensOf = config.oidc?.issuer;
    this.#isKeyless = isKeyless;
    if (isKeyless) this.#watch = setInterval(() => void this.#look(), WATCH_MS).unref();
  }

  static async open(options: KeyringOptions): Promise<Keyring> {
    const { catalog, config } = options;
    const isOpen = config.apiKeys.length === 0 && !config.oidc;
    return new Keyring(options, isOpen && !(await catalog.keys.any()));
  }

  /** Whether everybody gets in. Never again once there was a key: to revoke the last one must not open the door. */
  get isKeyless(): boolean {
    return this.#isKeyless;
  }

  /** Undefined for a key that is not one of ours. */
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

  /** Who gets in, for people. */
  async names(): Promise<string[]> {
    const now = new Date().toISOString();
    const rows = await this.#catalog.keys.list();
    const working = rows.filter((row) => row.revoked_at === null && (row.expires_at === null || row.expires_at > now));
    const names = [...this.#configured.values()].map(({ subject }) => subject.subjectSlug);
    const tokens = this.#tokensOf === undefined ? [] : [`who has a token of ${this.#tokensOf}`];
    return [...new Set([...names, ...working.map(({ name }) => name), ...tokens])];
  }

  close(): void {
    clearInterval(this.#watch);
  }

  /** A key that is not there is looked up each time: it works from the moment it is made. */
  async #lookUp(hash: string): Promise<KeyRow | undefined> {
    const row = await this.#lookups.find(hash);
    if (row) this.#found.set(hash, row);
    return row;
  }

  async #look(): Promise<void> {
    try {
      if (!(await this.#catalog.keys.any())) return;
      this.#isKeyless = false;
      this.close();
      this.#log.info('there are API keys now: from here on a request needs one');
    } catch (error) {
      this.#log.debug({ err: error }, 'the catalog could not be asked for keys');
    }
  }

  /** Not worth failing for, nor waiting. */
  #recordUse(id: string, now: Date): void {
    if (this.#noted.has(id)) return;
    this.#noted.set(id, true);
    this.#catalog.keys
      .recordUse(id, now.toISOString(), new Date(now.getTime() - NOTE_USE_MS).toISOString())
      .catch((error: unknown) => this.#log.debug({ err: error }, 'the use of a key could not be noted'));
  }
}

function callerOf({ name, role }: KeyRow): Caller {
  return { subject: subjectNamed(name), roles: [role] };
}

/** So that people, and the scanners that look for secrets where none should be, know what they see. */
const PREFIX = 'everturn_';

/** A new key: 256 random bits behind a prefix, `everturn_[0-9a-f]{64}`. */
export function newApiKey(): string {
  return PREFIX + randomBytes(32).toString('hex');
}

/**
 * What is kept of a key. One round of SHA-256 is enough for it: slow hashes such as bcrypt make up for passwords that
 * can be guessed, and nobody guesses 256 random bits. They would only make each request slow.
 */
export function hashOfKey(key: string): string {
  return sha256(key);
}
