import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { access, mkdir, open, readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { sha256 } from '../hash.ts';
import { KeyedQueue } from '../keyed-queue.ts';
import { BlobNotFound, type BlobStore } from './blob-store.ts';

/** Files that are open at a time; a process has few handles, and one request may have thousands of blobs. */
const FILES_AT_ONCE = 32;

/** Blobs as files: `<root>/<session>/<sha256>`. */
export class FolderBlobStore implements BlobStore {
  readonly #root: string;
  readonly #queue = new KeyedQueue(FILES_AT_ONCE);

  constructor(root: string) {
    this.#root = root;
  }

  async put(sessionId: string, bytes: Uint8Array): Promise<string> {
    const blob = sha256(bytes);
    const file = this.#file(sessionId, blob);
    await this.#queue.run('files', () => write(file, bytes));
    return blob;
  }

  async check(): Promise<void> {
    await mkdir(this.#root, { recursive: true });
    await writeFile(path.join(this.#root, '.writable'), 'yes');
  }

  async get(sessionId: string, blob: string): Promise<Buffer> {
    const file = this.#file(sessionId, blob);
    try {
      return await this.#queue.run('files', () => readFile(file));
    } catch (error) {
      if (error instanceof Error && 'code' in error && error.code === 'ENOENT') {
        throw new BlobNotFound(sessionId, blob, { cause: error });
      }
      throw error;
    }
  }

  #file(sessionId: string, blob: string): string {
    // Both names come from URLs too.
    if (!/^\w+$/.test(sessionId) || !/^[0-9a-f]{64}$/.test(blob)) throw new BlobNotFound(sessionId, blob);
    return path.join(this.#root, sessionId, blob);
  }
}

/** Whoever finds the name finds all of the bytes: they are written aside, synced, and then get it. */
async function write(file: string, bytes: Uint8Array): Promise<void> {
  if (await exists(file)) return;
  const folder = path.dirname(file);
  await mkdir(folder, { recursive: true });
  const aside = path.join(folder, `.${randomUUID()}`);
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

async function exists(file: string): Promise<boolean> {
  try {
    await access(file, constants.R_OK);
    return true;
  } catch {
    return false;
  }
}
