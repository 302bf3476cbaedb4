import { isUtf8 } from 'node:buffer';
import { constants, type Stats } from 'node:fs';
import { lstat, open, opendir, readlink, type FileHandle } from 'node:fs/promises';
import { jsonBytes } from '../../../core/text.ts';
import { codeOf, within } from './entry.ts';
import { LeftOut } from './left-out.ts';
import type { StoredWorkspaceFile, WorkspaceEntry } from './workspace-list.ts';
import { MAX_PATH_BYTES, WORKSPACE } from '../../../spec/workspace-path.ts';

/** Limited, since each folder on the path is kept open. */
const MAX_DEPTH = 100;

/** The number of names of a folder that are read together. */
const BATCH = 64;

/** The JSON bytes of the paths and the targets of links in a list. */
const MAX_NAMES_BYTES = 8 * 1024 * 1024;

/** The last millisecond of the year 9999: times are limited, since code can set any time. */
const MAX_TIME = 253_402_300_799_999;

/** The minimum age for a stamp: changes within a file system's tick (10 ms before Linux 6.13) share a stamp. */
const STAMP_AGE_MS = 20;

export interface WorkspaceLimits {
  /** The sizes of all files. */
  maxBytes: number;
  /** Files, folders and links. */
  maxFiles: number;
}

/** A file as the file system describes it. */
export type ScannedFile = Omit<StoredWorkspaceFile, 'sha256' | 'blobs'>;

export type ScannedEntry = ScannedFile | Exclude<WorkspaceEntry, StoredWorkspaceFile>;

interface ScanOptions extends WorkspaceLimits {
  /** In milliseconds since 1970. */
  now: number;
}

/**
 * Lists the contents of a workspace up to the limits, and the omitted paths. The limits also bound the time, whatever
 * the workspace contains.
 */
export async function scanWorkspace(
  folder: string,
  options: ScanOptions,
): Promise<{ entries: ScannedEntry[]; leftOut: LeftOut }> {
  const scan = new Scan(options);
  await scan.folder(folder, '', 0);
  return scan;
}

class Scan {
  readonly entries: ScannedEntry[] = [];
  readonly leftOut = new LeftOut();
  readonly #options: ScanOptions;
  #entriesLeft: number;
  #bytesLeft: number;
  #namesBytesLeft = MAX_NAMES_BYTES;

  constructor(options: ScanOptions) {
    this.#options = options;
    this.#entriesLeft = options.maxFiles;
    this.#bytesLeft = options.maxBytes;
  }

  /** Adds the contents of a folder. `path` ends with a slash, or is empty for the workspace. */
  async folder(place: string, path: string, depth: number): Promise<void> {
    try {
      await using handle = await open(place, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
      if (depth > 0) this.entries.push({ kind: 'folder', path: path.slice(0, -1) });
      // Files before folders, so that a large folder does not displace the files beside it.
      for (const name of await this.#addFiles(handle, path)) {
        const inner = `${path}${name}/`;
        if (depth === MAX_DEPTH) this.leftOut.add(`it is more than ${MAX_DEPTH} folders deep`, inner);
        else if (this.#hasRoomFor(inner)) await this.folder(within(handle, name), inner, depth + 1);
      }
    } catch (error) {
      // A missing workspace is an error, and not an empty one; but code may have denied access to this process.
      if (depth === 0 && codeOf(error) !== 'EACCES') throw error;
      this.#failed(error, path || WORKSPACE);
    }
  }

  /** Adds the files of a folder. @returns its folders */
  async #addFiles(handle: FileHandle, path: string): Promise<string[]> {
    const names = await this.#names(handle, path);
    const folders: string[] = [];
    for (let from = 0; from < names.length; from += BATCH) {
      const batch = names.slice(from, from + BATCH);
      const stats = await Promise.all(batch.map((name) => statOf(handle, name)));
      for (const [index, name] of batch.entries()) {
        const found = stats[index];
        if (found?.isDirectory()) folders.push(name);
        else if (found) await this.#add(handle, name, path + name, found);
      }
    }
    return folders;
  }

  /** The names in a folder that can be part of a path, in a stable order. */
  async #names(handle: FileHandle, path: string): Promise<string[]> {
    const names: string[] = [];
    // Latin-1 has a character for each byte.
    for await (const { name } of await opendir(within(handle, '.'), { encoding: 'latin1', bufferSize: 256 })) {
      if (this.#entriesLeft === 0) {
        this.leftOut.add(`a workspace has at most ${this.#options.maxFiles} files and folders`, `${path}…`);
        break;
      }
      this.#entriesLeft -= 1;
      const bytes = Buffer.from(name, 'latin1');
      const entryPath = path + bytes.toString();
      if (!isUtf8(bytes)) this.leftOut.add('the name is not valid Unicode', entryPath);
      else if (Buffer.byteLength(entryPath) > MAX_PATH_BYTES) {
        this.leftOut.add(`the path has more than ${MAX_PATH_BYTES} bytes`, entryPath);
      } else names.push(bytes.toString());
    }
    return names.toSorted();
  }

  async #add(parent: FileHandle, name: string, path: string, stats: Stats): Promise<void> {
    if (stats.isSymbolicLink()) return this.#addLink(parent, name, path);
    if (!stats.isFile()) return this.leftOut.add('it is no file, folder or link', path);
    if (!this.#hasRoomFor(path)) return;
    if (stats.size > this.#bytesLeft) {
      return this.leftOut.add(`the files of a workspace have at most ${this.#options.maxBytes} bytes`, path);
    }
    this.#bytesLeft -= stats.size;
    const stamp = stampOf(stats, this.#options.now);
    this.entries.push({
      kind: 'file',
      path,
      bytes: stats.size,
      isExecutable: (stats.mode & 0o100) > 0,
      modifiedAt: Math.round(Math.min(Math.max(0, stats.mtimeMs), MAX_TIME)),
      ...(stamp !== undefined && { stamp }),
    });
  }

  async #addLink(parent: FileHandle, name: string, path: string): Promise<void> {
    try {
      const target = await readlink(within(parent, name), 'buffer');
      if (!isUtf8(target)) this.leftOut.add('the target of the link is not valid Unicode', path);
      else if (this.#hasRoomFor(path, target.toString())) {
        this.entries.push({ kind: 'link', path, target: target.toString() });
      }
    } catch (error) {
      this.#failed(error, path);
    }
  }

  #hasRoomFor(path: string, target = ''): boolean {
    this.#namesBytesLeft -= jsonBytes(path + target);
    if (this.#namesBytesLeft >= 0) return true;
    this.leftOut.add(`the paths of a workspace have at most ${MAX_NAMES_BYTES} bytes`, path);
    return false;
  }

  /** Handles an error. Paths that were removed or replaced during the scan are no longer part of the workspace. */
  #failed(error: unknown, path: string): void {
    const code = codeOf(error);
    if (code === undefined) throw error;
    if (!['ENOENT', 'ENOTDIR', 'ELOOP', 'EINVAL'].includes(code)) this.leftOut.add(`it cannot be read (${code})`, path);
  }
}

/** Undefined if the entry was removed in the meantime. */
async function statOf(folder: FileHandle, name: string): Promise<Stats | undefined> {
  try {
    return await lstat(within(folder, name));
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}

/** A stamp from the time of the last status change, which code cannot set, unlike the time of modification. */
function stampOf({ ino, size, ctimeMs }: Stats, now: number): string | undefined {
  return now - ctimeMs < STAMP_AGE_MS ? undefined : `${ino} ${size} ${ctimeMs}`;
}
