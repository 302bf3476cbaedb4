import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { NamedError } from '../lib/errors.ts';

/** One of the keys of `EVERTURN_ENCRYPTION_KEYS`. */
export interface EncryptionKey {
  /** Stored in plain text beside each value that is encrypted with the key. */
  id: string;
  /** 32 bytes. */
  key: Buffer;
}

/** A value was encrypted with a key that this process does not have. */
export class EncryptionKeyMissing extends NamedError {
  constructor(id: string) {
    super(`encrypted with the key ${JSON.stringify(id)}, which EVERTURN_ENCRYPTION_KEYS does not contain`);
  }
}

/**
 * A value cannot be decrypted although its key id is configured: it was altered, truncated or moved, or the key
 * differs.
 */
export class DecryptionFailed extends NamedError {
  constructor(aad: string, reason: string, options?: ErrorOptions) {
    super(`${aad} cannot be decrypted: ${reason}`, options);
  }
}

/** Whether an error means that a value could not be decrypted. */
export function isUnreadable(error: unknown): boolean {
  return error instanceof EncryptionKeyMissing || error instanceof DecryptionFailed;
}

/** An encrypted value. */
export interface Sealed {
  keyId: string;
  /** Salt, nonce, ciphertext, tag. */
  data: Buffer;
}

interface KnownKey extends EncryptionKey {
  /** The HMAC key of `nameOf`; never used for encryption. */
  nameKey: Buffer;
}

const SALT_BYTES = 16;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** How much longer an encrypted value is than its plaintext. */
export const SEALED_OVERHEAD_BYTES = SALT_BYTES + NONCE_BYTES + TAG_BYTES;

/**
 * Messages that are encrypted with one derived key. With random nonces, AES-GCM allows 2^32 messages per key (NIST SP
 * 800-38D), and live text alone would exceed that within weeks. Each process therefore derives its own keys from the
 * configured key and a random salt, and changes the salt after this many messages.
 */
const MESSAGES_PER_SALT = 2 ** 30;

/** Matches an encrypted text. Plain texts, except for titles, are JSON, which never begins like this. */
const TEXT = /^sealed:[\w.-]{1,32}:[A-Za-z0-9+/]{59,}={0,2}$/;

/** Cache of the keys derived from this process's salts and from those of others. */
const MAX_DERIVED_KEYS = 1_000;

/**
 * Encrypts stored values with AES-256-GCM. The first key encrypts; all keys decrypt. Without keys, values are stored as
 * plain text. `aad` is the additional authenticated data: it names where a value is stored, is not secret, and is not
 * stored with the value. A value that was moved elsewhere therefore cannot be decrypted.
 */
export class Cipher {
  readonly #keys: ReadonlyMap<string, KnownKey>;
  readonly #first: KnownKey | undefined;
  readonly #derived = new LRUCache<string, Buffer>({ max: MAX_DERIVED_KEYS });
  readonly #messagesPerSalt: number;
  #salt = randomBytes(SALT_BYTES);
  #messagesLeft: number;

  constructor(keys: EncryptionKey[], { messagesPerSalt = MESSAGES_PER_SALT } = {}) {
    this.#messagesPerSalt = messagesPerSalt;
    this.#messagesLeft = messagesPerSalt;
    this.#keys = new Map(keys.map(({ id, key }) => [id, { id, key, nameKey: derive(key, '', 'everturn/name') }]));
    [this.#first] = this.#keys.values();
  }

  get isOn(): boolean {
    return this.#first !== undefined;
  }

  /** Encrypts bytes. Requires a key: check `isOn` first. */
  seal(plain: Uint8Array, aad: string): Sealed {
    if (!this.#first) throw new Error('no encryption key is configured');
    if (this.#messagesLeft === 0) {
      this.#salt = randomBytes(SALT_BYTES);
      this.#messagesLeft = this.#messagesPerSalt;
    }
    this.#messagesLeft -= 1;
    const { id: keyId } = this.#first;
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv('aes-256-gcm', this.#derive(this.#first, this.#salt), nonce);
    cipher.setAAD(aadBytes(keyId, aad));
    const data = Buffer.concat([this.#salt, nonce, cipher.update(plain), cipher.final(), cipher.getAuthTag()]);
    return { keyId, data };
  }

  /** Decrypts bytes. @throws EncryptionKeyMissing, DecryptionFailed */
  open({ keyId, data }: { keyId: string; data: Uint8Array }, aad: string): Buffer {
    const key = this.#keys.get(keyId);
    if (!key) throw new EncryptionKeyMissing(keyId);
    if (data.length < SEALED_OVERHEAD_BYTES) throw new DecryptionFailed(aad, 'it is truncated');
    const salt = data.subarray(0, SALT_BYTES);
    const nonce = data.subarray(SALT_BYTES, SALT_BYTES + NONCE_BYTES);
    const decipher = createDecipheriv('aes-256-gcm', this.#derive(key, salt), nonce, { authTagLength: TAG_BYTES });
    decipher.setAAD(aadBytes(keyId, aad));
    decipher.setAuthTag(data.subarray(-TAG_BYTES));
    try {
      const text = data.subarray(SALT_BYTES + NONCE_BYTES, -TAG_BYTES);
      return Buffer.concat([decipher.update(text), decipher.final()]);
    } catch (error) {
      const id = JSON.stringify(keyId);
      const reason = `it was altered or moved, or ${id} in EVERTURN_ENCRYPTION_KEYS is a different key`;
      throw new DecryptionFailed(aad, reason, { cause: error });
    }
  }

  /** The stored form of a text: encrypted, or unchanged if there is no key. */
  sealText(text: string, aad: string): string {
    if (!this.#first) return text;
    const { keyId, data } = this.seal(Buffer.from(text), aad);
    return `sealed:${keyId}:${data.toString('base64')}`;
  }

  /**
   * The text that was passed to `sealText`. A text that was stored without encryption is returned unchanged.
   * @throws EncryptionKeyMissing, DecryptionFailed
   */
  openText(stored: string, aad: string): string {
    if (!stored.startsWith('sealed:')) return stored;
    const end = stored.indexOf(':', 'sealed:'.length);
    if (end < 0) throw new DecryptionFailed(aad, 'it is truncated');
    const data = Buffer.from(stored.slice(end + 1), 'base64');
    return this.open({ keyId: stored.slice('sealed:'.length, end), data }, aad).toString();
  }

  /**
   * Like `openText`, but null if the text cannot be decrypted. For titles and metadata, whose loss must not make their
   * session unusable. A plain title may begin like an encrypted text, so only a complete match is decrypted.
   */
  openLabel(stored: string | null, aad: string): string | null {
    if (stored === null || !this.#first || !TEXT.test(stored)) return stored;
    try {
      return this.openText(stored, aad);
    } catch {
      return null;
    }
  }

  /**
   * A name for the content with this SHA-256 within a scope: the same for the same content, but an HMAC, so that a
   * guess of the content cannot be verified against it. Without keys it is the hash itself.
   */
  nameOf(hash: string, scope: string): string {
    return this.#first ? nameUnder(this.#first, hash, scope) : hash;
  }

  /** All names under which a content may be stored: its current name, those under the other keys, and its hash. */
  namesOf(hash: string, scope: string): string[] {
    return [...[...this.#keys.values()].map((key) => nameUnder(key, hash, scope)), hash];
  }

  /** A one-way fingerprint of each key, by which a store recognizes the key. */
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

function aadBytes(keyId: string, aad: string): Buffer {
  return Buffer.from(`${keyId}\n${aad}`);
}

function nameUnder({ nameKey }: KnownKey, hash: string, scope: string): string {
  return createHmac('sha256', nameKey).update(`${scope}\n${hash}`).digest('hex');
}

function derive(key: Buffer, salt: string | Uint8Array, purpose: string): Buffer {
  return Buffer.from(hkdfSync('sha256', key, salt, purpose, 32));
}

/** Encrypts nothing. */
export const NO_ENCRYPTION = new Cipher([]);

/** The marker of encrypted bytes; the key id and a colon follow. 0xff never occurs in UTF-8 text. */
const FILE_PREFIX = Buffer.from([0xff, ...Buffer.from('sealed:')]);

/** The marker, a key id of at most 32 bytes, and a colon. */
export const MAX_HEADER_BYTES = FILE_PREFIX.length + 32 + 1;

/** Encrypts bytes into their stored form, which begins with a marker. */
export function sealBytes(bytes: Uint8Array, aad: string, cipher: Cipher): Buffer {
  const { keyId, data } = cipher.seal(bytes, aad);
  return Buffer.concat([FILE_PREFIX, Buffer.from(`${keyId}:`), data]);
}

/** Parses the stored form of `sealBytes`; undefined if the bytes are not encrypted. */
export function readSealed(bytes: Uint8Array): Sealed | undefined {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  if (!buffer.subarray(0, FILE_PREFIX.length).equals(FILE_PREFIX)) return undefined;
  const header = buffer.subarray(FILE_PREFIX.length, MAX_HEADER_BYTES);
  const idBytes = header.indexOf(':');
  // Truncated inside the key id: no ciphertext is left.
  if (idBytes < 0) return { keyId: header.toString(), data: Buffer.alloc(0) };
  return { keyId: header.toString('utf8', 0, idBytes), data: buffer.subarray(FILE_PREFIX.length + idBytes + 1) };
}
