import { constants } from 'node:fs';
import { open } from 'node:fs/promises';

export interface OpenFolder extends AsyncDisposable {
  /** A short path of the folder, until it is closed. */
  place: string;
}

/** Opens a folder for the sockets in it: their paths have a limit of about 100 bytes, which its own may exceed. */
export async function openFolder(folder: string): Promise<OpenFolder> {
  const handle = await open(folder, constants.O_RDONLY | constants.O_DIRECTORY);
  return { place: `/proc/self/fd/${handle.fd}`, [Symbol.asyncDispose]: () => handle.close() };
}
