import { MAX_HEADER_BYTES, NO_ENCRYPTION, readSealed, SEALED_OVERHEAD_BYTES, sealBytes } from '../encryption/cipher.ts';
import { sha256 } from '../lib/hash.ts';
import { BlobNotFound, BlobTooLarge } from './blob-store.ts';

/** Stored bytes may exceed the content by this much. */
const MAX_OVERHEAD_BYTES = MAX_HEADER_BYTES + SEALED_OVERHEAD_BYTES;

/**
 * The names and the bytes of blobs as every store has them. Encrypted bytes begin with a marker. Their names are keyed,
 * since a plain hash would reveal to everyone who has the same file that it is stored here.
 */
export class StoredForm {
  readonly #cipher;

  constructor(cipher = NO_ENCRYPTION) {
    this.#cipher = cipher;
  }

  nameOf(sessionId: string, content: Uint8Array): string {
    return this.#cipher.nameOf(sha256(content), `blob/${sessionId}`);
  }

  toStored(sessionId: string, blob: string, content: Uint8Array): Uint8Array {
    return this.#cipher.isOn ? sealBytes(content, aadForBlob(sessionId, blob), this.#cipher) : content;
  }

  /**
   * Reads a blob through `read`, whose bound applies to the stored bytes: it returns undefined if the blob does not
   * exist, and `too large` if it exceeds the bound.
   * @throws BlobNotFound, BlobTooLarge
   */
  async read(
    { sessionId, blob, maxBytes }: { sessionId: string; blob: string; maxBytes: number },
    read: (maxStoredBytes: number) => Promise<Buffer | 'too large' | undefined>,
  ): Promise<Buffer> {
    const stored = await read(maxBytes + MAX_OVERHEAD_BYTES);
    if (!stored) throw new BlobNotFound(sessionId, blob);
    const content = stored === 'too large' ? undefined : this.#contentOf(sessionId, blob, stored);
    if (!content || content.length > maxBytes) throw new BlobTooLarge(sessionId, blob, maxBytes);
    return content;
  }

  #contentOf(sessionId: string, blob: string, stored: Buffer): Buffer {
    const sealed = readSealed(stored);
    // Bytes stored without encryption may begin with the marker by coincidence; their name is their plain hash.
    if (!sealed || sha256(stored) === blob) return stored;
    return this.#cipher.open(sealed, aadForBlob(sessionId, blob));
  }
}

function aadForBlob(sessionId: string, blob: string): string {
  return `blob/${sessionId}/${blob}`;
}

/**
 * The path of a blob below the root of its store.
 * @throws BlobNotFound for ids that cannot exist, since both may come from a URL
 */
export function placeOf(sessionId: string, blob: string): string {
  if (!/^\w+$/.test(sessionId) || !/^[0-9a-f]{64}$/.test(blob)) throw new BlobNotFound(sessionId, blob);
  return `${sessionId}/${blob}`;
}

/** The folder of a session below the root of its store. */
export function folderOf(sessionId: string): string {
  if (!/^\w+$/.test(sessionId)) throw new Error(`${JSON.stringify(sessionId)} is not the id of a session`);
  return sessionId;
}
