import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes } from 'node:crypto';
import { LRUCache } from 'lru-cache';

/** One of the keys of `EVERTURN_ENCRYPTION_KEYS`. */
export interface EncryptionKey {
  /** What stands beside everything that is encrypted under it. */
  id: string;
  /** 32 bytes. */
  key: Buffer;
}

/** Something was encrypted under a key that this process does not have. */
export class EncryptionKeyMissing extends Error {
  static {
    this.prototype.name = 'EncryptionKeyMissing';
  }

  constructor(id: string) {
    super(`this is encrypted under the key ${JSON.stringify(id)}, which EVERTURN_ENCRYPTION_KEYS does not have`);
  }
}

/** Something can't be decrypted although its key is there: it was changed, cut off or moved, or the key is another one. */
export class DecryptionFailed extends Error {
  static {
    this.prototype.name = 'DecryptionFailed';
  }

  constructor(context: string, reason: string, options?: ErrorOptions) {
    super(`${context} can not be decrypted: ${reason}`, options);
  }
}

/** Whether something could not be decrypted. */
export function isUnreadable(error: unknown): boolean {
  return error instanceof EncryptionKeyMissing || error instanceof DecryptionFailed;
}

/** What `seal` makes of some bytes. */
export interface Sealed {
  keyId: string;
  /** Salt, nonce, ciphertext, tag. */
  data: Buffer;
}

interface KnownKey extends EncryptionKey {
  /** For names: nothing is encrypted under it. */
  nameKey: Buffer;
}

const SALT_BYTES = 16;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** What an encrypted value is longer than its plaintext. */
export const SEALED_OVERHEAD_BYTES = SALT_BYTES + NONCE_BYTES + TAG_BYTES;

/**
 * With random nonces one key is good for 2^32 messages (NIST SP 800-38D). Live text alone would come to that in weeks, so
 * each process encrypts under keys of its own, derived from the configured one and a salt, and takes the next after so many.
 */
const MESSAGES_PER_SALT = 2 ** 30;

/** An encrypted text. JSON, which all texts are that may be encrypted but titles, does not begin so. */
const TEXT = /^sealed:[\w.-]{1,32}:[A-Za-z0-9+/]{59,}={0,2}$/;

/** Keys that were derived from salts, of this process and of others. */
const MAX_DERIVED_KEYS = 1_000;

/**
 * Encrypts what is stored with AES-256-GCM: under the first of its keys, while all of them decrypt. Without keys everything
 * stays as it is. A `context` says where a value belongs; it is no secret and is not stored with the value, which can only
 * be decrypted in the same place.
 */
export class Cipher {
  readonly #keys: ReadonlyMap<string, KnownKey>;
  readonly #first: KnownKey | undefined;
  readonly #derived = new LRUCache<string, Buffer>({ max: MAX_DERIVED_KEYS });
  #salt = randomBytes(SALT_BYTES);
  #messagesLeft = MESSAGES_PER_SALT;

  constructor(keys: EncryptionKey[]) {
    this.#keys = new Map(keys.map(({ id, key }) => [id, { id, key, nameKey: derive(key, '', 'everturn/name') }]));
    [this.#first] = this.#keys.values();
  }

  get isOn(): boolean {
    return this.#first !== undefined;
  }

  /** For those who know that there is a key. */
  seal(plain: Uint8Array, context: string): Sealed {
    if (!this.#first) throw new Error('there is no key to encrypt with');
    if (this.#messagesLeft === 0) {
      this.#salt = randomBytes(SALT_BYTES);
      this.#messagesLeft = MESSAGES_PER_SALT;
    }
    this.#messagesLeft -= 1;
    const { id: keyId } = this.#first;
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv('aes-256-gcm', this.#derive(this.#first, this.#salt), nonce);
    cipher.setAAD(boundTo(keyId, context));
    const data = Buffer.concat([this.#salt, nonce, cipher.update(plain), cipher.final(), cipher.getAuthTag()]);
    return { keyId, data };
  }

  /** @throws EncryptionKeyMissing, DecryptionFailed */
  open({ keyId, data }: { keyId: string; data: Uint8Array }, context: string): Buffer {
    const key = this.#keys.get(keyId);
    if (!key) throw new EncryptionKeyMissing(keyId);
    if (data.length < SEALED_OVERHEAD_BYTES) throw new DecryptionFailed(context, 'it is cut off');
    const salt = data.subarray(0, SALT_BYTES);
    const nonce = data.subarray(SALT_BYTES, SALT_BYTES + NONCE_BYTES);
    const decipher = createDecipheriv('aes-256-gcm', this.#derive(key, salt), nonce, { authTagLength: TAG_BYTES });
    decipher.setAAD(boundTo(keyId, context));
    decipher.setAuthTag(data.subarray(-TAG_BYTES));
    try {
      const text = data.subarray(SALT_BYTES + NONCE_BYTES, -TAG_BYTES);
      return Buffer.concat([decipher.update(text), decipher.final()]);
    } catch (error) {
      const reason = `it was changed or moved, or its key is not the ${JSON.stringify(keyId)} of EVERTURN_ENCRYPTION_KEYS`;
      throw new DecryptionFailed(context, reason, { cause: error });
    }
  }

  /** A text in the form in which it is stored: encrypted, or as it is if there is no key. */
  sealText(text: string, context: string): string {
    if (!this.#first) return text;
    const { keyId, data } = this.seal(Buffer.from(text), context);
    return `sealed:${keyId}:${data.toString('base64')}`;
  }

  /** What `sealText` was given. What was stored without encryption is given as it is. @throws EncryptionKeyMissing, DecryptionFailed */
  openText(stored: string, context: string): string {
    if (!stored.startsWith('sealed:')) return stored;
    const end = stored.indexOf(':', 'sealed:'.length);
    if (end < 0) throw new DecryptionFailed(context, 'it is cut off');
    const data = Buffer.from(stored.slice(end + 1), 'base64');
    return this.open({ keyId: stored.slice('sealed:'.length, end), data }, context).toString();
  }

  /**
   * Like `openText`, for texts that anything may be written in, and whose loss must not keep anybody from what they belong
   * to: null if it can't be decrypted.
   */
  openLabel(stored: string | null, context: string): string | null {
    if (stored === null || !this.#first || !TEXT.test(stored)) return stored;
    try {
      return this.openText(stored, context);
    } catch {
      return null;
    }
  }

  /**
   * Stands for the content with this SHA-256 within a scope: the same for the same content, and nothing that whoever
   * guesses the content could compare. Without keys it is the hash itself.
   */
  nameOf(hash: string, scope: string): string {
    return this.#first ? nameUnder(this.#first, hash, scope) : hash;
  }

  /** All names that a content may have been stored under: the one that it has now, those under the other keys, its hash. */
  namesOf(hash: string, scope: string): string[] {
    return [...[...this.#keys.values()].map((key) => nameUnder(key, hash, scope)), hash];
  }

  /** By which a store knows each key again, and nobody finds it out. */
  fingerprints(): { id: string; fingerprint: string }[] {
    return [...this.#keys.values()].map((key) => ({ id: key.id, fingerprint: nameUnder(key, '', 'fingerprint') }));
  }

  #derive({ id, key }: KnownKey, salt: Uint8Array): Buffer {
    const name = `${id} ${Buffer.from(salt.buffer, salt.byteOffset, salt.length).toString('latin1')}`;
    const known = this.#derived.get(name);
    if (known) return known;
    const derived = derive(key, salt, 'everturn/seal');
    this.#derived.set(name, derived);
    return derived;
  }
}

function boundTo(keyId: string, context: string): Buffer {
  return Buffer.from(`${keyId}\n${context}`);
}

function nameUnder({ nameKey }: KnownKey, hash: string, scope: string): string {
  return createHmac('sha256', nameKey).update(`${scope}\n${hash}`).digest('hex');
}

function derive(key: Buffer, salt: string | Uint8Array, purpose: string): Buffer {
  return Buffer.from(hkdfSync('sha256', key, salt, purpose, 32));
}

/** Where nothing is encrypted. */
export const NO_ENCRYPTION = new Cipher([]);
