import { SEALED_OVERHEAD_BYTES, type Cipher, type Sealed } from './cipher.ts';

/** Begins encrypted bytes; the id of their key and a colon follow. No text in UTF-8 begins so. */
const PREFIX = Buffer.from([0xff, ...Buffer.from('sealed:')]);

/** Of what stands before the encrypted bytes: the longest id of a key is 32 bytes. */
export const MAX_HEADER_BYTES = PREFIX.length + 32 + 1;

/** Encrypted bytes as they are stored: told apart from others by how they begin. */
export function sealBytes(bytes: Uint8Array, context: string, cipher: Cipher): Buffer {
  const { keyId, data } = cipher.seal(bytes, context);
  return Buffer.concat([PREFIX, Buffer.from(`${keyId}:`), data]);
}

/** Reads what `sealBytes` has written; undefined if it is something else. */
export function readSealed(bytes: Uint8Array): Sealed | undefined {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  if (!buffer.subarray(0, PREFIX.length).equals(PREFIX)) return undefined;
  const header = buffer.subarray(PREFIX.length, MAX_HEADER_BYTES);
  const idBytes = header.indexOf(':');
  // Cut off before its end; what is left is no ciphertext.
  if (idBytes < 0) return { keyId: header.toString(), data: Buffer.alloc(0) };
  return { keyId: header.toString('utf8', 0, idBytes), data: buffer.subarray(PREFIX.length + idBytes + 1) };
}

/** How many bytes were encrypted, by the beginning of what is stored and its length; undefined if it is not encrypted. */
export function plainSize(head: Uint8Array, storedBytes: number): number | undefined {
  const sealed = readSealed(head);
  return sealed && storedBytes - (head.length - sealed.data.length) - SEALED_OVERHEAD_BYTES;
}
