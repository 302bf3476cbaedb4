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

/** A socket on which the owner process of the folder listens until it ends. */
const OWNER = 'owner';

export interface HostFolder {
  path: string;
  /** Removes the folder with its contents. */
  remove: () => Promise<void>;
}

/**
 * Makes a folder for the sandboxes of this process. It is not in the data folder, which other users cannot traverse;
 * the durable parts of a sandbox are in the blob store. Removes the folders of killed hosts, also of hosts in other
 * containers that share `parent`, whose processes are not visible here.
 */
export async function makeHostFolder(parent = os.tmpdir()): Promise<HostFolder> {
  await removeOrphans(parent);
  const folder = await mkdtemp(path.join(parent, PREFIX));
  const owner = createServer((client) => client.destroy()).unref();
  // Open until the socket is closed, which removes its path.
  const opened = await openFolder(folder);
  await once(owner.listen(path.join(opened.place, `.${OWNER}`)), 'listening');
  // Renamed once it listens, so that a socket under the final name always has a listener.
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
    // Another process may be removing the folder, and a failure to remove it must not prevent the start.
    if (await isOrphan(folder)) await removeTree(folder).catch(() => undefined);
  }
}

/** Whether the host of a folder of this user has ended. False if the host does not listen yet. */
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

/** Removes a folder of a sandbox. Uses `rm`, since code may have made paths that are too long for Node.js. */
export async function removeTree(folder: string): Promise<void> {
  await run('rm', ['-rf', '--', folder]);
}
