import type { Cipher, Sealed } from './cipher.ts';

/** The marker of encrypted bytes; the key id and a colon follow. 0xff never occurs in UTF-8 text. */
const PREFIX = Buffer.from([0xff, ...Buffer.from('sealed:')]);

/** The marker, a key id of at most 32 bytes, and a colon. */
export const MAX_HEADER_BYTES = PREFIX.length + 32 + 1;

/** Encrypts bytes into their stored form, which begins with a marker. */
export function sealBytes(bytes: Uint8Array, aad: string, cipher: Cipher): Buffer {
  const { keyId, data } = cipher.seal(bytes, aad);
  return Buffer.concat([PREFIX, Buffer.from(`${keyId}:`), data]);
}

/** Parses the stored form of `sealBytes`; undefined if the bytes are not encrypted. */
export function readSealed(bytes: Uint8Array): Sealed | undefined {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  if (!buffer.subarray(0, PREFIX.length).equals(PREFIX)) return undefined;
  const header = buffer.subarray(PREFIX.length, MAX_HEADER_BYTES);
  const idBytes = header.indexOf(':');
  // Truncated inside the key id: no ciphertext is left.
  if (idBytes < 0) return { keyId: header.toString(), data: Buffer.alloc(0) };
  return { keyId: header.toString('utf8', 0, idBytes), data: buffer.subarray(PREFIX.length + idBytes + 1) };
}
