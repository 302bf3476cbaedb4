import { isUtf8 } from 'node:buffer';
import { constants, type Stats } from 'node:fs';
import { chown, mkdir, open, readlink, type FileHandle } from 'node:fs/promises';
import { leaves, shown, stepsOf, stepsOfTarget, WorkspaceFileError } from './workspace-path.ts';

/** The user and group of a sandbox, where they are not those of this process. */
interface Owner {
  uid: number;
  gid: number;
}

/** A folder of the host that code in a sandbox writes. Everything in it is hostile, and may change at any time. */
export interface WorkspaceFolder {
  folder: string;
  /** Its path for code with namespaces. Default: `WORKSPACE`. */
  place?: string;
  /** The owner of new files and folders. */
  owner?: Owner | undefined;
}

/**
 * Makes a descriptor for an entry without opening it: a pipe does not block, a device does nothing, and a link is not
 * followed. Node.js has no constant for this flag of Linux, which has the same value on x86-64 and arm64.
 */
const O_PATH = 0o10000000;

/** The folders and links that are followed for one path: each takes several system calls. */
const MAX_STEPS = 1_000;

/** The entry to which a path leads. */
interface Entry extends AsyncDisposable {
  /** The folder that contains it. */
  folder: FileHandle;
  name: string;
  /** Undefined if there is no such entry. */
  found: Found | undefined;
}

interface Found {
  handle: FileHandle;
  stats: Stats;
}

/** Checks the target of a path with links, relative to the workspace. Throws if the target is not permitted. */
export type LinkCheck = (path: string) => Promise<void>;

/** The code of an error of the operating system, such as ENOENT; undefined for other errors. */
export function codeOf(error: unknown): string | undefined {
  return error instanceof Error && 'syscall' in error && 'code' in error ? String(error.code) : undefined;
}

/** The path of a name in an open folder. It remains in this folder even if the folder or its parents are replaced. */
export function within(folder: FileHandle, name: string): string {
  return `${itself(folder)}/${name}`;
}

/** A path to an open file or folder that is not looked up by name again. */
export function itself({ fd }: FileHandle): string {
  return `/proc/self/fd/${fd}`;
}

/**
 * Follows a path from folder to folder by descriptors, so that neither a link nor a folder that is replaced by a link
 * leads out of the workspace. Links that stay inside are followed.
 * @param missingFolders whether missing folders of the path are made, or are an error
 * @param linked called before folders are made or the entry is returned, if a link was followed
 * @throws WorkspaceFileError
 */
export async function findEntry(
  workspace: WorkspaceFolder,
  path: string,
  missingFolders: 'fail' | 'make',
  linked?: LinkCheck,
): Promise<Entry> {
  const { folder: root, place, owner } = workspace;
  /** The remaining steps; the last element is the next one. */
  const steps = stepsOf(path, root, place).toReversed();
  /** The names from the workspace to `folder`. */
  let names: string[] = [];
  let isLinked = false;
  let folder = await open(root, O_PATH | constants.O_DIRECTORY);
  const enter = async (next: FileHandle): Promise<void> => {
    await folder.close();
    folder = next;
  };
  const backToRoot = async (): Promise<void> => {
    names = [];
    await enter(await open(root, O_PATH | constants.O_DIRECTORY));
  };
  try {
    for (let taken = 0; taken < MAX_STEPS; taken += 1) {
      const step = steps.pop();
      if (step === undefined) throw new WorkspaceFileError('not_a_file', `${shown(path)} is a folder`);
      if (step === '.') continue;
      if (step === '..') {
        if (names.length === 0) throw leaves(path, place);
        // Starts from the root again, since a folder that was moved has another parent.
        steps.push(...names.slice(0, -1).toReversed());
        await backToRoot();
        continue;
      }
      const found = await find(folder, step);
      if (found?.stats.isSymbolicLink()) {
        await found.handle.close();
        isLinked = true;
        const target = await targetOf(folder, step, workspace);
        if (!target) throw leaves(path, place);
        if (target.from === 'workspace') await backToRoot();
        steps.push(...target.names.toReversed());
      } else if (steps.length === 0) {
        try {
          if (isLinked) await linked?.([...names, step].join('/'));
        } catch (error) {
          await found?.handle.close();
          throw error;
        }
        const inFolder = folder;
        const close = async () => {
          await Promise.all([inFolder.close(), found?.handle.close()]);
        };
        return { folder, name: step, found, [Symbol.asyncDispose]: close };
      } else if (found?.stats.isDirectory()) {
        await enter(found.handle);
        names.push(step);
      } else if (found) {
        await found.handle.close();
        throw new WorkspaceFileError('not_found', `${shown(path)} does not exist: ${shown(step)} is not a folder`);
      } else if (missingFolders === 'make') {
        if (isLinked) await linked?.([...names, step, ...steps.toReversed()].join('/'));
        await makeSubfolder(folder, step, owner);
        steps.push(step);
      } else {
        throw new WorkspaceFileError('not_found', `${shown(path)} does not exist`);
      }
    }
    throw new WorkspaceFileError('invalid_path', `${shown(path)} has too many links and folders`);
  } catch (error) {
    await folder.close();
    throw error;
  }
}

async function find(folder: FileHandle, name: string): Promise<Found | undefined> {
  let handle;
  try {
    handle = await open(within(folder, name), O_PATH | constants.O_NOFOLLOW);
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
  return { handle, stats: await handle.stat() };
}

/** Undefined if the link leads out of the workspace. */
async function targetOf(
  folder: FileHandle,
  link: string,
  { folder: root, place }: WorkspaceFolder,
): Promise<ReturnType<typeof stepsOfTarget>> {
  const target = await readlink(within(folder, link), 'buffer');
  return isUtf8(target) ? stepsOfTarget(target.toString(), root, place) : undefined;
}

/** Makes a folder, unless something has the name. */
export async function makeSubfolder(parent: FileHandle, name: string, owner: Owner | undefined): Promise<void> {
  try {
    await mkdir(within(parent, name), { mode: 0o755 });
  } catch (error) {
    // The code in the sandbox has just made it.
    if (codeOf(error) === 'EEXIST') return;
    throw error;
  }
  const made = await find(parent, name);
  if (!made) return;
  try {
    // Only for a folder, and by descriptor: by name, the owner of another file might be changed.
    if (owner && made.stats.isDirectory()) await chown(itself(made.handle), owner.uid, owner.gid);
  } finally {
    await made.handle.close();
  }
}
