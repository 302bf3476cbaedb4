import { randomUUID } from 'node:crypto';
import { mkdir, open, readdir, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { NO_ENCRYPTION } from '../encryption/cipher.ts';
import { MAX_HEADER_BYTES, plainSize, readSealed, sealBytes } from '../encryption/encrypted-file.ts';
import { sha256 } from '../lib/hash.ts';
import { KeyedSemaphore } from '../lib/keyed-semaphore.ts';
import { BlobNotFound, type BlobStore, type ListedBlob } from './blob-store.ts';

/** File handles are limited per process, and one request may have thousands of blobs. */
const MAX_CONCURRENT_FILES = 32;

/**
 * Stores blobs as files: `<root>/<session>/<name>`. Encrypted files begin with a marker. Their names are keyed, since a
 * plain hash would reveal to everyone who has the same file that it is stored here.
 */
export class FolderBlobStore implements BlobStore {
  readonly #root: string;
  readonly #cipher;
  readonly #queue = new KeyedSemaphore(MAX_CONCURRENT_FILES);

  constructor(root: string, cipher = NO_ENCRYPTION) {
    this.#root = root;
    this.#cipher = cipher;
  }

  /** The blob store in a server's data folder. */
  static in(dataDir: string, cipher = NO_ENCRYPTION): FolderBlobStore {
    return new FolderBlobStore(path.join(dataDir, 'blobs'), cipher);
  }

  async put(sessionId: string, bytes: Uint8Array): Promise<string> {
    const blob = this.#cipher.nameOf(sha256(bytes), `blob/${sessionId}`);
    const file = this.#file(sessionId, blob);
    const stored = this.#cipher.isOn ? sealBytes(bytes, aadForBlob(sessionId, blob), this.#cipher) : bytes;
    await this.#queue.run('files', () => write(file, stored));
    return blob;
  }

  async check(): Promise<void> {
    await mkdir(this.#root, { recursive: true });
    await writeFile(path.join(this.#root, '.writable'), 'yes');
  }

  async size(sessionId: string, blob: string): Promise<number> {
    const file = this.#file(sessionId, blob);
    const stats = await this.#queue.run('files', () => unlessMissing(() => stat(file)));
    if (!stats) throw new BlobNotFound(sessionId, blob);
    if (!this.#cipher.isOn) return stats.size;
    const head = await this.#queue.run('files', () => unlessMissing(() => readHead(file)));
    return (head && plainSize(head, stats.size)) ?? stats.size;
  }

  async get(sessionId: string, blob: string): Promise<Buffer> {
    const file = this.#file(sessionId, blob);
    const bytes = await this.#queue.run('files', () => unlessMissing(() => readFile(file)));
    if (!bytes) throw new BlobNotFound(sessionId, blob);
    const sealed = readSealed(bytes);
    // A file stored without encryption may begin with the marker by coincidence; its name is its plain hash.
    if (!sealed || sha256(bytes) === blob) return bytes;
    return this.#cipher.open(sealed, aadForBlob(sessionId, blob));
  }

  async list(sessionId: string): Promise<ListedBlob[]> {
    const folder = this.#folder(sessionId);
    const names = await unlessMissing(() => readdir(folder));
    const listed = (names ?? []).map((name) =>
      this.#queue.run('files', async () => {
        const stats = await unlessMissing(() => stat(path.join(folder, name)));
        return stats ? [{ name, storedAt: stats.mtimeMs }] : [];
      }),
    );
    return (await Promise.all(listed)).flat();
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

  #file(sessionId: string, blob: string): string {
    // Both may come from a URL.
    if (!/^\w+$/.test(sessionId) || !/^[0-9a-f]{64}$/.test(blob)) throw new BlobNotFound(sessionId, blob);
    return path.join(this.#folder(sessionId), blob);
  }

  #folder(sessionId: string): string {
    if (!/^\w+$/.test(sessionId)) throw new Error(`${JSON.stringify(sessionId)} is not the id of a session`);
    return path.join(this.#root, sessionId);
  }
}

function aadForBlob(sessionId: string, blob: string): string {
  return `blob/${sessionId}/${blob}`;
}

async function readHead(file: string): Promise<Buffer> {
  const handle = await open(file);
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(MAX_HEADER_BYTES), 0, MAX_HEADER_BYTES, 0);
    return buffer.subarray(0, bytesRead);
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
