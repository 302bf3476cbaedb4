/**
 * Bytes that are too large for a workflow's history: files, and the large strings of records. Content-addressed within
 * a session, so that a session's blobs are its own, and go with it.
 */
export interface BlobStore {
  /** Stores the bytes durably before it returns. @returns their SHA-256, in hex. */
  put(sessionId: string, bytes: Uint8Array): Promise<string>;
  /** @throws BlobNotFound */
  get(sessionId: string, blob: string): Promise<Buffer>;
  /** Throws if nothing can be stored now. */
  check(): Promise<void>;
}

export class BlobNotFound extends Error {
  constructor(sessionId: string, blob: string, options?: ErrorOptions) {
    super(`session ${sessionId} has no blob ${blob}`, options);
  }
}
