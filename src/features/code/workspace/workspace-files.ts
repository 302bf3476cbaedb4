import { randomUUID } from 'node:crypto';
import { constants, type Stats } from 'node:fs';
import { lchown, link, open, rename, symlink, unlink, type FileHandle } from 'node:fs/promises';
import { posix } from 'node:path';
import { KeyedSemaphore } from '../../../lib/keyed-semaphore.ts';
import { codeOf, findEntry, itself, makeSubfolder, within, type LinkCheck, type WorkspaceFolder } from './entry.ts';
import { shown, stepsOf, WorkspaceFileError } from './workspace-path.ts';

const CHUNK_BYTES = 64 * 1024;

interface OpenFile {
  handle: FileHandle;
  stats: Stats;
}

/** The attributes of a written file; default: those of the replaced file, else not executable, and modified now. */
interface FileAttributes {
  isExecutable?: boolean;
  /** In milliseconds since 1970. */
  modifiedAt?: number;
}

/**
 * The files of a sandbox, for a process that may have more rights than the code in it. A sandbox has one instance, so
 * that two calls do not change a file at the same time.
 */
export class WorkspaceFiles {
  readonly #workspace: WorkspaceFolder;
  readonly #writes: KeyedSemaphore;
  readonly #linked: LinkCheck | undefined;

  constructor(workspace: WorkspaceFolder, writes = new KeyedSemaphore(1), linked?: LinkCheck) {
    this.#workspace = workspace;
    this.#writes = writes;
    this.#linked = linked;
  }

  /** The same files, for a caller that may not use all of them: the targets of links are checked. */
  withLinks(linked: LinkCheck): WorkspaceFiles {
    return new WorkspaceFiles(this.#workspace, this.#writes, linked);
  }

  /** Calls `use` with a regular file that is open for reading. @throws WorkspaceFileError */
  read<T>(path: string, use: (file: OpenFile) => Promise<T>): Promise<T> {
    return explained(`${shown(path)} cannot be read`, async () => {
      await using entry = await findEntry(this.#workspace, path, 'fail', this.#linked);
      if (!entry.found) throw new WorkspaceFileError('not_found', `${shown(path)} does not exist`);
      this.#checkFile(path, entry.found.stats);
      // Without O_NONBLOCK, a lease on the file by hostile code would block a thread for 45 seconds.
      await using handle = await open(itself(entry.found.handle), constants.O_RDONLY | constants.O_NONBLOCK);
      return await use({ handle, stats: await handle.stat() });
    });
  }

  /** Writes a file atomically, and makes the folders that it needs. @throws WorkspaceFileError */
  write(
    path: string,
    content: string | Uint8Array | AsyncIterable<Uint8Array>,
    attributes?: FileAttributes,
  ): Promise<void> {
    return this.#alone(path, async () => void (await this.#write(path, content, attributes)));
  }

  /**
   * Writes a new file, under another path if a file has this one. Returns its path.
   * @throws WorkspaceFileError
   */
  async writeNew(wanted: string, content: string | Uint8Array): Promise<string> {
    const { dir, name, ext } = posix.parse(wanted);
    const other = posix.join(dir, `${name}_${randomUUID().slice(0, 8)}${ext}`);
    for (const free of [wanted, other]) {
      if (await this.#write(free, content, { isNew: true })) return free;
    }
    throw new WorkspaceFileError('failed', `${shown(wanted)} cannot be written: other files have its name`);
  }

  /**
   * Replaces the content of a file of at most `maxBytes` by the result of `change`. No other write of this instance to
   * the path happens in between.
   * @throws WorkspaceFileError
   */
  update(path: string, maxBytes: number, change: (content: Buffer) => string): Promise<void> {
    return this.#alone(path, async () => {
      const content = await this.read(path, (file) => readAll(file, path, maxBytes));
      await this.#write(path, change(content));
    });
  }

  /** @throws WorkspaceFileError */
  remove(path: string): Promise<void> {
    return explained(`${shown(path)} cannot be removed`, async () => {
      await using entry = await findEntry(this.#workspace, path, 'fail');
      if (!entry.found) throw new WorkspaceFileError('not_found', `${shown(path)} does not exist`);
      if (entry.found.stats.isDirectory()) throw new WorkspaceFileError('not_a_file', `${shown(path)} is a folder`);
      await unlink(within(entry.folder, entry.name));
    });
  }

  /** @throws WorkspaceFileError */
  makeFolder(path: string): Promise<void> {
    return explained(`${shown(path)} cannot be made`, async () => {
      await using entry = await findEntry(this.#workspace, path, 'make');
      if (!entry.found) await makeSubfolder(entry.folder, entry.name, this.#workspace.owner);
    });
  }

  /** Makes a symbolic link with any target: it is not followed out of the workspace here. @throws WorkspaceFileError */
  makeLink(path: string, target: string): Promise<void> {
    return explained(`${shown(path)} cannot be made`, async () => {
      await using entry = await findEntry(this.#workspace, path, 'make');
      const link = within(entry.folder, entry.name);
      await symlink(target, link);
      const { owner } = this.#workspace;
      if (owner) await lchown(link, owner.uid, owner.gid);
    });
  }

  async #alone(path: string, write: () => Promise<void>): Promise<void> {
    const steps = stepsOf(path, this.#workspace.folder, this.#workspace.place);
    await this.#writes.run(steps.join('/'), write);
  }

  /** @returns false if the file was to be a new one, and the path is taken */
  #write(
    path: string,
    content: string | Uint8Array | AsyncIterable<Uint8Array>,
    { isExecutable, modifiedAt, isNew = false }: FileAttributes & { isNew?: boolean } = {},
  ): Promise<boolean> {
    return explained(`${shown(path)} cannot be written`, async () => {
      await using entry = await findEntry(this.#workspace, path, 'make', this.#linked);
      const replaced = entry.found?.stats;
      if (replaced && isNew) return false;
      if (replaced) this.#checkFile(path, replaced);
      const { owner } = this.#workspace;
      const temporary = within(entry.folder, `.everturn-${randomUUID()}`);
      // Never writes into an existing file, which may have other links, or be open in the sandbox.
      const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
      await using handle = await open(temporary, flags, 0o600);
      try {
        await handle.writeFile(content);
        if (owner) await handle.chown(owner.uid, owner.gid);
        await handle.chmod(replaced ? replaced.mode & 0o777 : isExecutable ? 0o755 : 0o644);
        if (modifiedAt !== undefined) await handle.utimes(new Date(modifiedAt), new Date(modifiedAt));
        const place = within(entry.folder, entry.name);
        if (!isNew) {
          await rename(temporary, place);
          return true;
        }
        const isFree = await isLinked(temporary, place);
        await unlink(temporary);
        return isFree;
      } catch (error) {
        await unlink(temporary).catch(() => undefined);
        throw error;
      }
    });
  }

  /** @throws WorkspaceFileError */
  #checkFile(path: string, stats: Stats): void {
    if (stats.isDirectory()) throw new WorkspaceFileError('not_a_file', `${shown(path)} is a folder`);
    if (!stats.isFile()) throw new WorkspaceFileError('not_a_file', `${shown(path)} is not a regular file`);
    const { owner } = this.#workspace;
    // Unless the system forbids hard links to files of other users, code could make this process read one of them.
    if (owner && stats.nlink > 1 && stats.uid !== owner.uid) {
      throw new WorkspaceFileError('invalid_path', `${shown(path)} is a link to a file of another user`);
    }
  }
}

/** Gives a file a second name. False if the name is taken. */
async function isLinked(file: string, name: string): Promise<boolean> {
  try {
    await link(file, name);
    return true;
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false;
    throw error;
  }
}

/** The first `maxBytes` of a file in pieces of `chunkBytes`, of which the last one may be shorter. */
export async function* chunksOf(
  { handle }: Pick<OpenFile, 'handle'>,
  maxBytes: number,
  chunkBytes = CHUNK_BYTES,
): AsyncGenerator<Buffer> {
  for (let from = 0; from < maxBytes;) {
    const chunk = Buffer.allocUnsafe(Math.min(chunkBytes, maxBytes - from));
    let filled = 0;
    while (filled < chunk.length) {
      const { bytesRead } = await handle.read(chunk, filled, chunk.length - filled, from + filled);
      if (bytesRead === 0) break;
      filled += bytesRead;
    }
    if (filled > 0) yield chunk.subarray(0, filled);
    if (filled < chunk.length) return;
    from += filled;
  }
}

/** The content of a file of at most `maxBytes`. @throws WorkspaceFileError */
export async function readAll(file: OpenFile, path: string, maxBytes: number): Promise<Buffer> {
  const { size } = file.stats;
  if (size > maxBytes) {
    throw new WorkspaceFileError(
      'unsuitable',
      `${shown(path)} has ${size} bytes, more than ${maxBytes}: use code for it`,
    );
  }
  // Reads at most the original size, since code may append to the file.
  return Buffer.concat(await Array.fromAsync(chunksOf(file, size)));
}

/** @throws WorkspaceFileError for a system error, without the path on the host, which is private to the operator */
async function explained<T>(problem: string, operation: () => Promise<T>): Promise<T> {
  try {
    return await operation();
  } catch (error) {
    const code = codeOf(error);
    if (code === undefined) throw error;
    throw new WorkspaceFileError('failed', `${problem} (${code})`, { cause: error });
  }
}
