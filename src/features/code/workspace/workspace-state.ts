import { createHash } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { BlobNotFound } from '../../../blobs/blob-store.ts';
import type { WorkspaceFolder } from './entry.ts';
import { LeftOut } from './left-out.ts';
import { scanWorkspace, type ScannedEntry, type ScannedFile, type WorkspaceLimits } from './scan-workspace.ts';
import { chunksOf, WorkspaceFiles } from './workspace-files.ts';
import {
  filesIn,
  PIECE_BYTES,
  readWorkspaceList,
  storeWorkspaceList,
  type ReadList,
  type SessionBlobs,
  type StoredWorkspaceFile,
  type WorkspaceEntry,
  type WorkspaceList,
} from './workspace-list.ts';
import { WorkspaceFileError } from './workspace-path.ts';

/** The number of files that are read or written at the same time, each with a piece in memory. */
const CONCURRENCY = 16;

interface StateOptions extends SessionBlobs, WorkspaceFolder {
  limits: WorkspaceLimits;
  /** Milliseconds since 1970. */
  now?: () => number;
}

/** Stores the files of a workspace by content, so that they survive the loss of its host. */
export class WorkspaceState {
  readonly #options: StateOptions;
  readonly #files: WorkspaceFiles;

  constructor(options: StateOptions) {
    this.#options = options;
    this.#files = new WorkspaceFiles(options);
  }

  /**
   * Stores the files that have changed since `previous`, and the list of all files. Files that running code changes
   * meanwhile are stored again by the next save. The notices of the result contain the paths that are not stored.
   * @throws BlobsUnavailable
   */
  async save(previous: WorkspaceList | undefined): Promise<WorkspaceList> {
    const before = previous && (await this.#read(previous));
    const stored = byPath(before ? filesIn(before.entries) : []);
    return this.#store({
      ...(await this.#scan()),
      before,
      known: ({ path, stamp }) => {
        const file = stored.get(path);
        return stamp !== undefined && file?.stamp === stamp ? file : undefined;
      },
    });
  }

  /**
   * Writes the files of a list into the folder, which must be empty. Code must not run in it yet.
   * @returns the list for the next save; its notices contain the lost paths
   * @throws BlobsUnavailable; the folder then has a part of the files
   */
  async restore(list: WorkspaceList): Promise<WorkspaceList> {
    const { folder } = this.#options;
    if ((await readdir(folder)).length > 0) throw new Error(`${folder} is not empty: restore into a new folder`);
    const listed = await readWorkspaceList(this.#options, list);
    const files = filesIn(listed);
    const lost = new LeftOut();
    for (const entry of listed) if (entry.kind === 'folder') await this.#files.makeFolder(entry.path);
    await mapConcurrently(files, (file) => this.#restoreFile(file, lost));
    // Links are made last, so that nothing is written through them.
    for (const entry of listed) if (entry.kind === 'link') await this.#files.makeLink(entry.path, entry.target);
    const restored = byPath(files);
    return this.#store({
      ...(await this.#scan()),
      earlier: lost.notices('lost'),
      known: ({ path, bytes, modifiedAt }) => {
        const file = restored.get(path);
        return file?.bytes === bytes && file.modifiedAt === modifiedAt ? file : undefined;
      },
    });
  }

  /**
   * Applies the changes of a client, the difference of two lists, to the folder. Code may have changed the folder, too.
   * @returns notices for the model about changes that could not be applied
   * @throws BlobsUnavailable
   */
  async change(from: WorkspaceList | undefined, to: WorkspaceList): Promise<string[]> {
    const stored = from && (await this.#read(from));
    const before = byPath(stored ? filesIn(stored.entries) : []);
    const after = byPath(filesIn(await readWorkspaceList(this.#options, to)));
    const failed = new LeftOut();
    const attempt = async (path: string, change: Promise<void>): Promise<void> => {
      await change.catch((error: unknown) => {
        if (!(error instanceof WorkspaceFileError)) throw error;
        if (error.code !== 'not_found') failed.add(error.message, path);
      });
    };
    const removed = [...before.keys()].filter((path) => !after.has(path));
    await mapConcurrently(removed, (path) => attempt(path, this.#files.remove(path)));
    const written = [...after.values()].filter(({ path, sha256 }) => before.get(path)?.sha256 !== sha256);
    await mapConcurrently(written, (file) => attempt(file.path, this.#restoreFile(file, failed)));
    return failed.notices('not changed by a client');
  }

  /** Reads a list; undefined if it is lost, after which all files are stored again. */
  async #read({ blob }: WorkspaceList): Promise<ReadList | undefined> {
    try {
      return { blob, entries: await readWorkspaceList(this.#options, { blob }) };
    } catch (error) {
      if (error instanceof BlobNotFound) return undefined;
      throw error;
    }
  }

  #scan(): ReturnType<typeof scanWorkspace> {
    const { folder, limits, now = Date.now } = this.#options;
    return scanWorkspace(folder, { ...limits, now: now() });
  }

  async #store({ entries, leftOut, known, earlier = [], before }: Scanned): Promise<WorkspaceList> {
    const stored = await mapConcurrently(entries, async (entry): Promise<WorkspaceEntry[]> => {
      if (entry.kind !== 'file') return [entry];
      const { sha256, blobs } = known(entry) ?? {};
      return sha256 !== undefined && blobs ? [{ ...entry, sha256, blobs }] : this.#storeFile(entry, leftOut);
    });
    const list = { entries: stored.flat(), notices: [...earlier, ...leftOut.notices('not stored')] };
    return storeWorkspaceList(this.#options, list, before);
  }

  /** Stores a file. Empty if the file was removed since it was listed, or cannot be read. */
  async #storeFile(entry: ScannedFile, leftOut: LeftOut): Promise<StoredWorkspaceFile[]> {
    const { blobs: store, sessionId } = this.#options;
    const hash = createHash('sha256');
    const blobs: string[] = [];
    let bytes = 0;
    try {
      await this.#files.read(entry.path, async (file) => {
        // Reads at most the listed size, so that growing files do not exceed the limits.
        for await (const piece of chunksOf(file, entry.bytes, PIECE_BYTES)) {
          hash.update(piece);
          blobs.push(await store.put(sessionId, piece));
          bytes += piece.length;
        }
      });
    } catch (error) {
      if (!(error instanceof WorkspaceFileError)) throw error;
      if (error.code !== 'not_found') leftOut.add(error.message, entry.path);
      return [];
    }
    return [{ ...entry, bytes, sha256: hash.digest('hex'), blobs }];
  }

  async #restoreFile({ path, blobs, ...attributes }: StoredWorkspaceFile, lost: LeftOut): Promise<void> {
    const { blobs: store, sessionId } = this.#options;
    const pieces = async function* (): AsyncGenerator<Buffer> {
      for (const blob of blobs) yield await store.get(sessionId, blob, PIECE_BYTES);
    };
    try {
      await this.#files.write(path, pieces(), attributes);
    } catch (error) {
      if (!(error instanceof BlobNotFound)) throw error;
      lost.add('the blob store no longer has it', path);
    }
  }
}

interface Scanned {
  entries: ScannedEntry[];
  leftOut: LeftOut;
  /** The stored form of a file, if the file has not changed. */
  known: (file: ScannedFile) => StoredWorkspaceFile | undefined;
  /** Earlier notices to keep. */
  earlier?: string[];
  /** The stored list. */
  before?: ReadList | undefined;
}

function byPath(files: StoredWorkspaceFile[]): Map<string, StoredWorkspaceFile> {
  return new Map(files.map((file) => [file.path, file]));
}

/** Maps items concurrently. After a failure, no further item is begun. */
async function mapConcurrently<T, R>(items: readonly T[], map: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  // A loop that ends early closes the generator, which ends the other loops. An array's iterator cannot be closed.
  const queue = (function* () {
    yield* items.entries();
  })();
  const worker = async (): Promise<void> => {
    for (const [index, item] of queue) results[index] = await map(item);
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, worker));
  return results;
}
