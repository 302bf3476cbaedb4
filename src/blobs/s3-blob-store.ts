import { Readable } from 'node:stream';
import {
  AbortMultipartUploadCommand,
  DeleteObjectsCommand,
  GetObjectCommand,
  ListMultipartUploadsCommand,
  ListObjectsV2Command,
  NoSuchKey,
  NoSuchUpload,
  PutObjectCommand,
  S3Client,
  S3ServiceException,
} from '@aws-sdk/client-s3';
import { Upload } from '@aws-sdk/lib-storage';
import type { Cipher } from '../encryption/cipher.ts';
import { errorMessage } from '../lib/errors.ts';
import { KeyedSemaphore } from '../lib/keyed-semaphore.ts';
import { BlobsUnavailable, MAX_BLOB_BYTES, type BlobStore, type ListedBlob } from './blob-store.ts';
import { folderOf, placeOf, StoredForm } from './stored-form.ts';

/** A bucket or a part of one in an S3-compatible store. The AWS SDK reads credentials and region from its variables. */
export interface S3Location {
  bucket: string;
  /** Without slashes at its ends; empty: the whole bucket. */
  prefix: string;
  /** The URL of the server; unset: AWS. */
  endpoint: string | undefined;
}

/** The SDK opens at most 50 connections, and one request may have thousands of blobs. */
const MAX_CONCURRENT_OPERATIONS = 32;

/** Larger blobs are uploaded in parts of this size, each of which is repeated by itself; S3 requires at least 5 MiB. */
const PART_BYTES = 8 * 1024 * 1024;

/** An attempt without a connection, or without a byte, for this long has failed. */
const CONNECT_MS = 3_000;
const IDLE_MS = 5_000;
const MAX_ATTEMPTS = 3;

/** How long an operation may take with all of its attempts. */
const OPERATION_MS = 60_000;
/** The collection of blobs blocks their session during a deletion, and with SQLite the whole catalog. */
const DELETE_MS = 10_000;

/** Separates the name of a blob from the id of its unfinished upload; neither contains it. */
const UPLOAD = '?uploadId=';

/**
 * Stores blobs as objects: `<prefix>/<session>/<name>`. A blob that is put again is written again, because an object's
 * time cannot be changed otherwise. Every failure except for a missing blob is `BlobsUnavailable`: an operator can mend
 * a lost bucket or expired credentials, and what waits for the store continues then.
 */
export class S3BlobStore implements BlobStore {
  readonly #bucket: string;
  readonly #prefix: string;
  readonly #client: S3Client;
  readonly #form: StoredForm;
  readonly #queue = new KeyedSemaphore(MAX_CONCURRENT_OPERATIONS);

  constructor({ bucket, prefix, endpoint }: S3Location, cipher?: Cipher) {
    this.#bucket = bucket;
    this.#prefix = prefix && `${prefix}/`;
    this.#form = new StoredForm(cipher);
    this.#client = new S3Client({
      // Servers other than AWS rarely have a host name per bucket.
      ...(endpoint !== undefined && { endpoint, forcePathStyle: true }),
      maxAttempts: MAX_ATTEMPTS,
      requestHandler: { connectionTimeout: CONNECT_MS, socketTimeout: IDLE_MS },
    });
  }

  async put(sessionId: string, bytes: Uint8Array): Promise<string> {
    const blob = this.#form.nameOf(sessionId, bytes);
    const Key = this.#prefix + placeOf(sessionId, blob);
    const Body = this.#form.toStored(sessionId, blob, bytes);
    await this.#run((abortController) =>
      new Upload({
        client: this.#client,
        params: { Bucket: this.#bucket, Key, Body },
        partSize: PART_BYTES,
        abortController,
      }).done(),
    );
    return blob;
  }

  async get(sessionId: string, blob: string, maxBytes = MAX_BLOB_BYTES): Promise<Buffer> {
    const Key = this.#prefix + placeOf(sessionId, blob);
    return this.#form.read({ sessionId, blob, maxBytes }, (maxStoredBytes) =>
      this.#run(async ({ signal: abortSignal }) => {
        const command = new GetObjectCommand({ Bucket: this.#bucket, Key });
        try {
          const { Body, ContentLength = 0 } = await this.#client.send(command, { abortSignal });
          if (!(Body instanceof Readable)) throw new Error('the response has no body');
          return await readUpTo(maxStoredBytes, Body, ContentLength);
        } catch (error) {
          if (error instanceof NoSuchKey) return undefined;
          throw error;
        }
      }),
    );
  }

  async *list(sessionId: string): AsyncIterable<ListedBlob[]> {
    const folder = this.#folder(sessionId);
    const scope = { Bucket: this.#bucket, Prefix: folder };
    let ContinuationToken: string | undefined;
    do {
      const command = new ListObjectsV2Command({ ...scope, ContinuationToken });
      const page = await this.#run(({ signal: abortSignal }) => this.#client.send(command, { abortSignal }));
      yield (page.Contents ?? []).flatMap(({ Key, LastModified }) =>
        Key?.startsWith(folder) && LastModified
          ? [{ name: Key.slice(folder.length), storedAt: LastModified.getTime() }]
          : [],
      );
      ContinuationToken = page.NextContinuationToken;
    } while (ContinuationToken);
    let after: { KeyMarker: string | undefined; UploadIdMarker: string | undefined } | undefined;
    do {
      const command = new ListMultipartUploadsCommand({ ...scope, ...after });
      const page = await this.#run(({ signal: abortSignal }) => this.#client.send(command, { abortSignal }));
      yield (page.Uploads ?? []).flatMap(({ Key, UploadId, Initiated }) =>
        Key?.startsWith(folder) && UploadId !== undefined && Initiated
          ? [{ name: Key.slice(folder.length) + UPLOAD + UploadId, storedAt: Initiated.getTime() }]
          : [],
      );
      const { NextKeyMarker: KeyMarker, NextUploadIdMarker: UploadIdMarker } = page;
      after = page.IsTruncated ? { KeyMarker, UploadIdMarker } : undefined;
    } while (after);
  }

  async delete(sessionId: string, names: string[]): Promise<void> {
    if (names.length === 0) return;
    const folder = this.#folder(sessionId);
    const uploads = names.filter((name) => name.includes(UPLOAD));
    const objects = names.filter((name) => !name.includes(UPLOAD)).map((name) => folder + name);
    await this.#run(async ({ signal }) => {
      await this.#deleteObjects(objects, signal);
      for (const upload of uploads) {
        const [name = '', uploadId = ''] = upload.split(UPLOAD);
        await this.#abortUpload(folder + name, uploadId, signal);
      }
    }, DELETE_MS);
  }

  async deleteAll(sessionId: string): Promise<void> {
    for await (const page of this.list(sessionId)) {
      const names = page.map(({ name }) => name);
      await this.delete(sessionId, names);
    }
  }

  async check(): Promise<void> {
    const command = new PutObjectCommand({ Bucket: this.#bucket, Key: `${this.#prefix}.writable`, Body: 'yes' });
    // Not behind the queue of the operations, so that a busy store does not count as one that fails.
    await this.#attempt(({ signal: abortSignal }) => this.#client.send(command, { abortSignal }));
  }

  close(): void {
    this.#client.destroy();
  }

  async #deleteObjects(keys: string[], abortSignal: AbortSignal): Promise<void> {
    if (keys.length === 0) return;
    const Delete = { Objects: keys.map((Key) => ({ Key })), Quiet: true };
    const command = new DeleteObjectsCommand({ Bucket: this.#bucket, Delete });
    const { Errors: [failed] = [] } = await this.#client.send(command, { abortSignal });
    if (failed) throw new Error(`${failed.Key} cannot be deleted: ${failed.Code}: ${failed.Message}`);
  }

  async #abortUpload(Key: string, UploadId: string, abortSignal: AbortSignal): Promise<void> {
    const command = new AbortMultipartUploadCommand({ Bucket: this.#bucket, Key, UploadId });
    try {
      await this.#client.send(command, { abortSignal });
    } catch (error) {
      if (!(error instanceof NoSuchUpload)) throw error;
    }
  }

  #folder(sessionId: string): string {
    return `${this.#prefix}${folderOf(sessionId)}/`;
  }

  #run<T>(operation: (deadline: AbortController) => Promise<T>, ms?: number): Promise<T> {
    return this.#queue.run('operations', () => this.#attempt(operation, ms));
  }

  /** @throws BlobsUnavailable */
  async #attempt<T>(operation: (deadline: AbortController) => Promise<T>, ms = OPERATION_MS): Promise<T> {
    const deadline = new AbortController();
    const timer = setTimeout(() => deadline.abort(), ms);
    try {
      return await operation(deadline);
    } catch (error) {
      const reason = deadline.signal.aborted ? `not completed within ${ms / 1000} s` : reasonOf(error);
      throw new BlobsUnavailable(`s3://${this.#bucket}/${this.#prefix}: ${reason}`, { cause: error });
    } finally {
      clearTimeout(timer);
    }
  }
}

async function readUpTo(maxBytes: number, body: Readable, announcedBytes: number): Promise<Buffer | 'too large'> {
  if (announcedBytes > maxBytes) {
    body.destroy();
    return 'too large';
  }
  const chunks: Buffer[] = [];
  let bytes = 0;
  // The end of the loop destroys the stream.
  for await (const chunk of body as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > maxBytes) return 'too large';
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function reasonOf(error: unknown): string {
  // A connection that fails at several addresses; the error itself has no message.
  if (error instanceof AggregateError) return reasonOf(error.errors[0]);
  return error instanceof S3ServiceException ? `${error.name}: ${error.message}` : errorMessage(error);
}
