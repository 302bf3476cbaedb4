import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { lstat, mkdtemp, readdir, rename } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { openFolder } from '../../../lib/open-folder.ts';

const run = promisify(execFile);

const PREFIX = 'everturn-kernel-host-';

/** A socket on which the process that has the folder listens until it ends. */
const OWNER = 'owner';

export interface HostFolder {
  path: string;
  /** Removes it with all that is in it. */
  remove: () => Promise<void>;
}

/**
 * Makes a folder for the sandboxes of this process. Not in the data folder, which other users cannot pass through: what is
 * kept of a sandbox is in the blob store. Those of hosts that were killed are removed, also of hosts in other containers that
 * share `parent`, whose processes are not seen from here.
 */
export async function makeHostFolder(parent = os.tmpdir()): Promise<HostFolder> {
  await removeOrphans(parent);
  const folder = await mkdtemp(path.join(parent, PREFIX));
  const owner = createServer((client) => client.destroy()).unref();
  // Open until the socket is closed, which removes its path.
  const opened = await openFolder(folder);
  await once(owner.listen(path.join(opened.place, `.${OWNER}`)), 'listening');
  // Under this name it has listened from the beginning.
  await rename(path.join(folder, `.${OWNER}`), path.join(folder, OWNER));
  const remove = async (): Promise<void> => {
    owner.close();
    await opened[Symbol.asyncDispose]();
    await removeTree(folder);
  };
  return { path: folder, remove };
}

async function removeOrphans(parent: string): Promise<void> {
  const names = (await readdir(parent)).filter((name) => name.startsWith(PREFIX));
  for (const folder of names.map((name) => path.join(parent, name))) {
    // Another start may be removing it, and one that cannot be removed is no reason not to start.
    if (await isOrphan(folder)) await removeTree(folder).catch(() => undefined);
  }
}

/** Whether the host of a folder of this user has ended. One whose host has not said yet that it runs is none. */
async function isOrphan(folder: string): Promise<boolean> {
  const found = await lstat(folder).catch(() => undefined);
  if (!found?.isDirectory() || found.uid !== process.geteuid?.()) return false;
  try {
    await using opened = await openFolder(folder);
    const client = connect(path.join(opened.place, OWNER));
    await once(client, 'connect').finally(() => client.destroy());
    return false;
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'ECONNREFUSED';
  }
}

/** Removes a folder of a sandbox. Code may have made paths in it that are longer than Node.js can remove. */
export async function removeTree(folder: string): Promise<void> {
  await run('rm', ['-rf', '--', folder]);
}
