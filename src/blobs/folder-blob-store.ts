import { randomUUID } from 'node:crypto';
import { mkdir, open, readdir, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { Cipher } from '../encryption/cipher.ts';
import { KeyedSemaphore } from '../lib/keyed-semaphore.ts';
import { BlobsUnavailable, LIST_PAGE_SIZE, MAX_BLOB_BYTES, type BlobStore, type ListedBlob } from './blob-store.ts';
import { folderOf, placeOf, StoredForm } from './stored-form.ts';

/** File handles are limited per process, and one request may have thousands of blobs. */
const MAX_CONCURRENT_FILES = 32;

/** Stores blobs as files: `<root>/<session>/<name>`. */
export class FolderBlobStore implements BlobStore {
  readonly #root: string;
  readonly #form: StoredForm;
  readonly #queue = new KeyedSemaphore(MAX_CONCURRENT_FILES);

  constructor(root: string, cipher?: Cipher) {
    this.#root = root;
    this.#form = new StoredForm(cipher);
  }

  async put(sessionId: string, bytes: Uint8Array): Promise<string> {
    const blob = this.#form.nameOf(sessionId, bytes);
    const file = this.#file(sessionId, blob);
    const stored = this.#form.toStored(sessionId, blob, bytes);
    await this.#queue.run('files', () => orOutage(() => write(file, stored)));
    return blob;
  }

  async get(sessionId: string, blob: string, maxBytes = MAX_BLOB_BYTES): Promise<Buffer> {
    const file = this.#file(sessionId, blob);
    return this.#form.read({ sessionId, blob, maxBytes }, (maxStoredBytes) =>
      this.#queue.run('files', () => orOutage(() => unlessMissing(() => readUpTo(maxStoredBytes, file)))),
    );
  }

  async *list(sessionId: string): AsyncIterable<ListedBlob[]> {
    const folder = this.#folder(sessionId);
    const names = (await unlessMissing(() => readdir(folder))) ?? [];
    for (let from = 0; from < names.length; from += LIST_PAGE_SIZE) {
      const page = names.slice(from, from + LIST_PAGE_SIZE).map((name) =>
        this.#queue.run('files', async () => {
          const stats = await unlessMissing(() => stat(path.join(folder, name)));
          return stats ? [{ name, storedAt: stats.mtimeMs }] : [];
        }),
      );
      yield (await Promise.all(page)).flat();
    }
  }

  async delete(sessionId: string, names: string[]): Promise<void> {
    const folder = this.#folder(sessionId);
    await Promise.all(
      names.map((name) => this.#queue.run('files', () => rm(path.join(folder, path.basename(name)), { force: true }))),
    );
  }

  async deleteAll(sessionId: string): Promise<void> {
    await rm(this.#folder(sessionId), { recursive: true, force: true });
  }

  async check(): Promise<void> {
    await mkdir(this.#root, { recursive: true });
    await writeFile(path.join(this.#root, '.writable'), 'yes');
  }

  close(): void {}

  #file(sessionId: string, blob: string): string {
    return path.join(this.#root, placeOf(sessionId, blob));
  }

  #folder(sessionId: string): string {
    return path.join(this.#root, folderOf(sessionId));
  }
}

/**
 * As in S3, every failure of the operating system is an outage: an operator can mend a folder that is not mounted, or not
 * permitted, and what waits for the store continues then.
 * @throws BlobsUnavailable
 */
async function orOutage<T>(operation: () => Promise<T>): Promise<T> {
  try {
    return await operation();
  } catch (error) {
    if (!(error instanceof Error && 'syscall' in error)) throw error;
    throw new BlobsUnavailable(error.message, { cause: error });
  }
}

async function readUpTo(maxBytes: number, file: string): Promise<Buffer | 'too large'> {
  const handle = await open(file);
  try {
    const { size } = await handle.stat();
    // A file never changes: it was renamed to its name when it was complete.
    return size > maxBytes ? 'too large' : await handle.readFile();
  } finally {
    await handle.close();
  }
}

/**
 * Writes a file atomically: to a temporary name, synced, then renamed, so that a reader of the name finds all bytes.
 * The folders of the file and of the session are synced too, even if the file exists: the process that wrote it may not
 * have synced them yet.
 */
async function write(file: string, bytes: Uint8Array): Promise<void> {
  const folder = path.dirname(file);
  if (!(await touchIfExists(file))) {
    await mkdir(folder, { recursive: true });
    await writeAndRename(file, bytes);
  }
  for (const parent of [folder, path.dirname(folder)]) await unlessMissing(() => sync(parent));
}

async function writeAndRename(file: string, bytes: Uint8Array): Promise<void> {
  const temporary = path.join(path.dirname(file), `.${randomUUID()}`);
  try {
    const handle = await open(temporary, 'wx');
    try {
      await handle.writeFile(bytes);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(temporary, file);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

/** Syncs a folder, so that the names in it survive a power cut. */
async function sync(folder: string): Promise<void> {
  const handle = await open(folder);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Sets a file's modification time to now. False if the file does not exist. */
async function touchIfExists(file: string): Promise<boolean> {
  const now = new Date();
  const exists = await unlessMissing(async () => {
    await utimes(file, now, now);
    return true;
  });
  return exists ?? false;
}

/** Undefined if the file does not exist. */
async function unlessMissing<T>(read: () => Promise<T>): Promise<T | undefined> {
  try {
    return await read();
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
}
