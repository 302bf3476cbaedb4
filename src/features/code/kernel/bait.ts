import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { chmod, mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { PROXY_PORT } from './bubblewrap.ts';

/** Objects outside of a kernel's wall that any user of this machine may use: a starting kernel tries to access them. */
export interface Bait {
  file: string;
  socket: string;
  /** A loopback address of this machine with a listener on the port that the proxy has inside of a sandbox. */
  host: string;
  /** This process. */
  pid: number;
}

const CONTENT = 'not for kernels';
const MODE = 0o666;

/** Provides a bait during `start`. @throws Error if the file was changed */
export async function withBait(start: (bait: Bait) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'everturn-wall-'));
  const [file, socket] = [path.join(folder, 'file'), path.join(folder, 'socket')];
  const server = createServer((client) => client.destroy()).unref();
  const host = `127.${randomInt(1, 255)}.${randomInt(256)}.${randomInt(1, 255)}`;
  const onPort = createServer((client) => client.destroy()).unref();
  await Promise.all([writeFile(file, CONTENT), once(server.listen(socket), 'listening'), listens(onPort, host)]);
  // Open permissions, so that only the wall protects the bait. Set by `chmod`, since the umask limits the calls above.
  await Promise.all([chmod(folder, 0o755), chmod(file, MODE), chmod(socket, 0o777)]);
  try {
    await start({ file, socket, host, pid: process.pid });
    const { mode, size } = await stat(file);
    const isUntouched = (mode & 0o7777) === MODE && size === CONTENT.length;
    if (!isUntouched) throw new Error('the wall does not hold: a file outside has been changed');
  } finally {
    server.close();
    onPort.close();
    await rm(folder, { recursive: true, force: true });
  }
}

async function listens(server: Server, host: string): Promise<void> {
  try {
    await once(server.listen(PROXY_PORT, host), 'listening');
  } catch (error) {
    // A server that listens at all addresses of this machine serves as the bait, too.
    if (!(error instanceof Error && 'code' in error && error.code === 'EADDRINUSE')) throw error;
  }
}
