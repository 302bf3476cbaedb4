import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { access, mkdir, open, readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { sha256 } from '../hash.ts';
import { BlobNotFound, type BlobStore } from './blob-store.ts';

/** Blobs as files: `<root>/<session>/<sha256>`. */
export class FolderBlobStore implements BlobStore {
  readonly #root: string;

  constructor(root: string) {
    this.#root = root;
  }

  async put(sessionId: string, bytes: Uint8Array): Promise<string> {
    const blob = sha256(bytes);
    const file = this.#file(sessionId, blob);
    if (await exists(file)) return blob;
    const folder = path.dirname(file);
    await mkdir(folder, { recursive: true });
    // Whoever finds the name finds all of the bytes: written aside, synced, renamed.
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
    return blob;
  }

  async check(): Promise<void> {
    await mkdir(this.#root, { recursive: true });
    await writeFile(path.join(this.#root, '.writable'), 'yes');
  }

  async get(sessionId: string, blob: string): Promise<Buffer> {
    try {
      return await readFile(this.#file(sessionId, blob));
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

async function exists(file: string): Promise<boolean> {
  try {
    await access(file, constants.R_OK);
    return true;
  } catch {
    return false;
  }
}
