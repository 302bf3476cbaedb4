/**
 * Bytes that are too large for a workflow's history: files, and the large strings of records. Content-addressed within
 * a session, so that a session's blobs are its own, and go with it.
 */
export interface BlobStore {
  /**
   * Stores the bytes durably before it returns. What is there already is as good as new: it counts as stored now.
   * @returns their name: 64 hex digits that stand for their content, the same whenever it is put again.
   */
  put(sessionId: string, bytes: Uint8Array): Promise<string>;
  /** How many bytes it has. @throws BlobNotFound */
  size(sessionId: string, blob: string): Promise<number>;
  /** @throws BlobNotFound */
  get(sessionId: string, blob: string): Promise<Buffer>;
  /** All that is stored for a session, also what was never finished. */
  list(sessionId: string): Promise<ListedBlob[]>;
  /** Deletes some of what `list` gave. What is not there is deleted already. */
  delete(sessionId: string, names: string[]): Promise<void>;
  /** Deletes all that is stored for a session. */
  deleteAll(sessionId: string): Promise<void>;
  /** Throws if nothing can be stored now. */
  check(): Promise<void>;
}

export interface ListedBlob {
  /** What `put` gave, if it is whole. */
  name: string;
  /** When it was last put: milliseconds since 1970, by the clock of the store. */
  storedAt: number;
}

export class BlobNotFound extends Error {
  static {
    this.prototype.name = 'BlobNotFound';
  }

  constructor(sessionId: string, blob: string, options?: ErrorOptions) {
    super(`session ${sessionId} has no blob ${blob}`, options);
  }
}
