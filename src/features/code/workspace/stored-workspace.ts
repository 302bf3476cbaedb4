import { createHash } from 'node:crypto';
import { posix } from 'node:path';
import { BlobNotFound, BlobTooLarge, type BlobStore } from '../../../blobs/blob-store.ts';
import type { CodeActions } from '../../../spec/code-actions.ts';
import type { SandboxRow, Sandboxes } from '../sandbox-rows.ts';
import { StoredTree } from './stored-tree.ts';
import { decodeUtf8 } from './text-content.ts';
import {
  filesIn,
  PIECE_BYTES,
  readWorkspaceList,
  storeWorkspaceList,
  workspaceListOf,
  type StoredWorkspaceFile,
} from './workspace-list.ts';
import { WorkspaceFileError } from './workspace-path.ts';

/** A list is parsed at once: a list of this size takes a fifth of a second, and has about 60,000 files. */
const MAX_LIST_BYTES = 16 * 1024 * 1024;

/** How often a change is retried because the workspace has changed meanwhile. */
const MAX_ATTEMPTS = 5;

interface WorkspaceSources {
  catalog: { sandboxes: Pick<Sandboxes, 'get' | 'createUnopened' | 'change'> };
  blobs: BlobStore;
}

/** The files of a workspace in their state when it was opened. */
export interface OpenedWorkspace {
  /** The names in a folder; empty if the folder does not exist. */
  names: (folder: string) => Promise<string[]>;
  /** The first bytes of a file as text; undefined if the file does not exist, or is no text in UTF-8. */
  text: (path: string, maxBytes: number) => Promise<string | undefined>;
}

/**
 * The workspaces of sessions as stored after each call, for clients, which read and change them without the hosts. A
 * host applies these changes to its folder before the next call.
 */
export class StoredWorkspaces {
  readonly #sources: WorkspaceSources;

  constructor(sources: WorkspaceSources) {
    this.#sources = sources;
  }

  /** @throws WorkspaceFileError if it has too many files */
  async tree(sessionId: string, row: Pick<SandboxRow, 'workspace'> | undefined): Promise<StoredTree> {
    const list = row && workspaceListOf(row);
    if (!list) return new StoredTree([]);
    const { blobs } = this.#sources;
    try {
      return new StoredTree(await readWorkspaceList({ blobs, sessionId }, list, MAX_LIST_BYTES));
    } catch (error) {
      if (error instanceof BlobNotFound) return new StoredTree([]);
      if (!(error instanceof BlobTooLarge)) throw error;
      throw new WorkspaceFileError('full', 'the workspace has too many files to be listed', { cause: error });
    }
  }

  /** The bytes of a file from `from` on, in pieces. @throws BlobNotFound */
  async *content(sessionId: string, { blobs }: StoredWorkspaceFile, from = 0): AsyncGenerator<Buffer> {
    let offset = from % PIECE_BYTES;
    for (const blob of blobs.slice(Math.floor(from / PIECE_BYTES))) {
      const piece = await this.#sources.blobs.get(sessionId, blob, PIECE_BYTES);
      yield piece.subarray(offset);
      offset = 0;
    }
  }

  /** The current files of a session; the files from its agent if nothing is stored yet. */
  async open(sessionId: string, { files }: Pick<CodeActions['workspace'], 'files'>): Promise<OpenedWorkspace> {
    const row = await this.#sources.catalog.sandboxes.get(sessionId);
    const given = new Map(row?.workspace ? [] : files.map(({ path, base64 }) => [path, base64]));
    const opening = row?.workspace ? this.tree(sessionId, row) : Promise.resolve(givenTree([...given.keys()]));
    const tree = await unlessMissing(() => opening);
    return {
      names: async (folder) => {
        const items = await unlessMissing(() => tree?.list(folder, { isRecursive: false }));
        return (items ?? []).map(({ path }) => posix.basename(path));
      },
      text: (path, maxBytes) =>
        unlessMissing(async () => {
          const file = tree?.file(path);
          if (!file) return undefined;
          const { value = Buffer.from(given.get(file.path) ?? '', 'base64') } = await this.content(
            sessionId,
            file,
          ).next();
          return decodeUtf8(value.subarray(0, maxBytes), { isPart: true });
        }),
    };
  }

  /** Writes a file. @throws WorkspaceFileError */
  async write(
    sessionId: string,
    path: string,
    { content, workspace }: { content: Uint8Array; workspace: CodeActions['workspace'] },
  ): Promise<StoredWorkspaceFile> {
    const stored = await this.#store(sessionId, content);
    const tree = await this.#change(sessionId, workspace, (before) => within(before.with(path, stored), workspace));
    return tree.file(path);
  }

  /**
   * Writes files under their names, or under other names if other contents have these. A repetition finds its own
   * files. Returns their paths.
   * @throws WorkspaceFileError
   */
  async place(
    sessionId: string,
    files: { name: string; content: Uint8Array }[],
    workspace: CodeActions['workspace'],
  ): Promise<string[]> {
    const stored = await Promise.all(
      files.map(async ({ name, content }) => ({ name, file: await this.#store(sessionId, content) })),
    );
    let paths: string[] = [];
    await this.#change(sessionId, workspace, (before) => {
      paths = [];
      let tree = before;
      for (const { name, file } of stored) {
        const path = tree.freeName(name, file.sha256);
        if (!tree.has(path)) tree = tree.with(path, file);
        paths.push(path);
      }
      return within(tree, workspace);
    });
    return paths;
  }

  /** @throws WorkspaceFileError */
  async remove(sessionId: string, path: string, workspace: CodeActions['workspace']): Promise<void> {
    await this.#change(sessionId, workspace, (before) => before.without(path));
  }

  async #change(
    sessionId: string,
    workspace: CodeActions['workspace'],
    change: (before: StoredTree) => StoredTree,
  ): Promise<StoredTree> {
    const { catalog, blobs } = this.#sources;
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt += 1) {
      const row = await catalog.sandboxes.get(sessionId);
      const before = row?.workspace ? await this.tree(sessionId, row) : await this.#first(sessionId, workspace);
      const tree = change(before);
      if (tree === before) return tree;
      if (!row) await catalog.sandboxes.createUnopened(sessionId);
      const list = await storeWorkspaceList({ blobs, sessionId }, { entries: tree.entries, notices: [] });
      const names = [list.blob, ...filesIn(tree.entries).flatMap((file) => file.blobs)];
      const changed = { sessionId, previous: row?.workspace ?? null, workspace: JSON.stringify(list) };
      const outcome = await catalog.sandboxes.change(changed, names, Date.now());
      if (outcome === 'changed') return tree;
      if (outcome === 'running') break;
    }
    throw new WorkspaceFileError('running', 'code of the session runs, and may change the files: try again after it');
  }

  /** Stores the agent's files for a workspace that has no stored files yet. */
  async #first(sessionId: string, { files }: CodeActions['workspace']): Promise<StoredTree> {
    let tree = new StoredTree([]);
    for (const { path, base64 } of files) {
      tree = tree.with(path, await this.#store(sessionId, Buffer.from(base64, 'base64')));
    }
    return tree;
  }

  async #store(sessionId: string, content: Uint8Array) {
    const blobs: string[] = [];
    for (let from = 0; from < content.length; from += PIECE_BYTES) {
      blobs.push(await this.#sources.blobs.put(sessionId, content.subarray(from, from + PIECE_BYTES)));
    }
    const sha256 = createHash('sha256').update(content).digest('hex');
    return { bytes: content.length, modifiedAt: Date.now(), sha256, blobs };
  }
}

/** The tree of the agent's files for a workspace, whose contents are not stored. */
function givenTree(paths: string[]): StoredTree {
  const unstored = { bytes: 0, modifiedAt: 0, sha256: '', blobs: [] };
  return paths.reduce((tree, path) => tree.with(path, unstored), new StoredTree([]));
}

async function unlessMissing<T>(read: () => Promise<T> | T): Promise<T | undefined> {
  try {
    return await read();
  } catch (error) {
    if (error instanceof WorkspaceFileError || error instanceof BlobNotFound) return undefined;
    throw error;
  }
}

/** @throws WorkspaceFileError if it has more than the agent allows */
function within(tree: StoredTree, { max_bytes: maxBytes, max_files: maxFiles }: CodeActions['workspace']): StoredTree {
  const { entries } = tree;
  const bytes = filesIn(entries).reduce((sum, file) => sum + file.bytes, 0);
  if (entries.length <= maxFiles && bytes <= maxBytes) return tree;
  const limits = `${maxFiles} files and folders with ${maxBytes} bytes`;
  throw new WorkspaceFileError('full', `the workspace may have ${limits}: remove files first`);
}
