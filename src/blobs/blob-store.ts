import { NamedError } from '../lib/errors.ts';

/**
 * Stores bytes that are too large for a workflow's history: files, and the large strings of records. Blobs are
 * content-addressed within a session, so a session shares none with others and they are deleted with it.
 */
export interface BlobStore {
  /**
   * Stores the bytes durably before it returns. If they are stored already, their `storedAt` is updated.
   * @returns their name: 64 hex digits, always the same for the same content in this session.
   */
  put(sessionId: string, bytes: Uint8Array): Promise<string>;
  /** Reads a blob, unless it has more than `maxBytes`. @throws BlobNotFound, BlobTooLarge */
  get(sessionId: string, blob: string, maxBytes?: number): Promise<Buffer>;
  /** Everything that is stored for a session, unfinished writes included, in pages. */
  list(sessionId: string): AsyncIterable<ListedBlob[]>;
  /** Deletes some of the entries of `list`, at most a page. Names that do not exist are ignored. */
  delete(sessionId: string, names: string[]): Promise<void>;
  /** Deletes everything that is stored for a session. */
  deleteAll(sessionId: string): Promise<void>;
  /** Throws if the store cannot be written. */
  check(): Promise<void>;
  close(): void;
}

export interface ListedBlob {
  /** The name that `put` returned; another name for an unfinished write. */
  name: string;
  /** When it was last put, in milliseconds since 1970, by the clock of the store. */
  storedAt: number;
}

/** The entries in one page of `list`: what S3 lists or deletes in one request. */
export const LIST_PAGE_SIZE = 1_000;

/** The default of `get`, larger than any blob: a request has at most 30 MiB, and other content less. */
export const MAX_BLOB_BYTES = 64 * 1024 * 1024;

export class BlobNotFound extends NamedError {
  constructor(sessionId: string, blob: string, options?: ErrorOptions) {
    super(`session ${sessionId} has no blob ${blob}`, options);
  }
}

export class BlobTooLarge extends NamedError {
  constructor(sessionId: string, blob: string, maxBytes: number) {
    super(`the blob ${blob} of session ${sessionId} has more than ${maxBytes} bytes`);
  }
}

/** The store cannot be reached or used; a retry may succeed. */
export class BlobsUnavailable extends NamedError {}
