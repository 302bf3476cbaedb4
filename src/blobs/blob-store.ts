/**
 * Stores bytes that are too large for a workflow's history: files, and the large strings of records. Blobs are
 * content-addressed within a session, so a session shares none with others and they are deleted with it.
 */
export interface BlobStore {
  /**
   * Stores the bytes durably before it returns. If they are stored already, only their `storedAt` is updated.
   * @returns their name: 64 hex digits, always the same for the same content in this session.
   */
  put(sessionId: string, bytes: Uint8Array): Promise<string>;
  /** The size of a blob in bytes. @throws BlobNotFound */
  size(sessionId: string, blob: string): Promise<number>;
  /** @throws BlobNotFound */
  get(sessionId: string, blob: string): Promise<Buffer>;
  /** Everything that is stored for a session, unfinished writes included. */
  list(sessionId: string): Promise<ListedBlob[]>;
  /** Deletes some of the entries of `list`. Names that do not exist are ignored. */
  delete(sessionId: string, names: string[]): Promise<void>;
  /** Deletes everything that is stored for a session. */
  deleteAll(sessionId: string): Promise<void>;
  /** Throws if the store cannot be written. */
  check(): Promise<void>;
}

export interface ListedBlob {
  /** The name that `put` returned; another name for an unfinished write. */
  name: string;
  /** When it was last put, in milliseconds since 1970, by the clock of the store. */
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
