import { randomUUID } from 'node:crypto';
import { mkdir, open, readdir, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { NO_ENCRYPTION } from '../encryption/cipher.ts';
import { MAX_HEADER_BYTES, plainSize, readSealed, sealBytes } from '../encryption/encrypted-file.ts';
import { sha256 } from '../lib/hash.ts';
import { KeyedSemaphore } from '../lib/keyed-semaphore.ts';
import { BlobNotFound, type BlobStore, type ListedBlob } from './blob-store.ts';

/** Files that are open at a time; a process has few handles, and one request may have thousands of blobs. */
const MAX_CONCURRENT_FILES = 32;

/**
 * Blobs as files: `<root>/<session>/<name>`. Encrypted ones are told apart by how they begin. Their names are keyed, since
 * the hash of a file says that it is there to everybody who has the same file.
 */
export class FolderBlobStore implements BlobStore {
  readonly #root: string;
  readonly #cipher;
  readonly #queue = new KeyedSemaphore(MAX_CONCURRENT_FILES);

  constructor(root: string, cipher = NO_ENCRYPTION) {
    this.#root = root;
    this.#cipher = cipher;
  }

  /** Those of a server that keeps its data there. */
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
    // A file that was stored without encryption may begin with anything: its name is its hash.
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
    // Both names come from URLs too.
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
 * Whoever finds the name finds all of the bytes: they are written aside, synced, and then get it. Their name and the
 * session's are synced too, also when they are there already: whoever wrote them may not have come to that yet.
 */
async function write(file: string, bytes: Uint8Array): Promise<void> {
  const folder = path.dirname(file);
  if (!(await touchIfExists(file))) {
    await mkdir(folder, { recursive: true });
    await writeAside(file, bytes);
  }
  for (const names of [folder, path.dirname(folder)]) await unlessMissing(() => sync(names));
}

async function writeAside(file: string, bytes: Uint8Array): Promise<void> {
  const aside = path.join(path.dirname(file), `.${randomUUID()}`);
  try {
    const handle = await open(aside, 'wx');
    try {
      await handle.writeFile(bytes);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(aside, file);
  } catch (error) {
    await rm(aside, { force: true });
    throw error;
  }
}

/** Has the names in a folder survive a power cut. */
async function sync(folder: string): Promise<void> {
  const handle = await open(folder);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Makes a file count as stored now. False if it is not there. */
async function touchIfExists(file: string): Promise<boolean> {
  const now = new Date();
  const isThere = await unlessMissing(async () => {
    await utimes(file, now, now);
    return true;
  });
  return isThere ?? false;
}

/** Undefined if the file is not there. */
async function unlessMissing<T>(read: () => Promise<T>): Promise<T | undefined> {
  try {
    return await read();
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
}
