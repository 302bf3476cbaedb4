import { execFile } from 'node:child_process';
import { readdir, readFile, readlink } from 'node:fs/promises';
import { promisify } from 'node:util';
import { setTimeout as sleep } from 'node:timers/promises';
import { once } from 'node:events';
import { createServer } from 'node:net';

const run = promisify(execFile);

/** A process of the user that we are; its arguments, the program's own name first, are joined by blanks. */
export interface Process {
  pid: number;
  commandLine: string;
}

/**
 * The processes that run as the same user as this one. A process of another user can have any command line, and so
 * claim to be whatever it likes.
 */
export async function listOwnProcesses(): Promise<Process[]> {
  const ownId = userId();
  if (process.platform !== 'linux') {
    const { stdout } = await run('ps', ['-axww', '-o', 'pid=,uid=,args='], { maxBuffer: 64 * 1024 * 1024 });
    return stdout.split('\n').flatMap((line) => {
      const [, pid, uid, commandLine = ''] = /^\s*(\d+)\s+(\d+) (.*)$/.exec(line) ?? [];
      return Number(uid) === ownId ? [{ pid: Number(pid), commandLine }] : [];
    });
  }
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number);
  const own = await Promise.all(pids.map(async (pid) => ((await userOf(pid)) === ownId ? [pid] : [])));
  return Promise.all(own.flat().map(async (pid) => ({ pid, commandLine: await commandLineOf(pid) })));
}

/** Empty if there is no such process, or one that has ended and whose parent has not waited for it. */
export async function commandLineOf(pid: number): Promise<string> {
  try {
    if (process.platform !== 'linux') return (await run('ps', ['-ww', '-o', 'args=', '-p', String(pid)])).stdout.trim();
    // Not by `ps`, which slim container images lack.
    return (await readFile(`/proc/${pid}/cmdline`, 'utf8')).split('\0').join(' ').trimEnd();
  } catch {
    return '';
  }
}

/**
 * Whether a process still has its files and ports, although it ends and `commandLineOf` is empty: the system frees its memory
 * first, which takes up to half a second on a busy machine. Only Linux says it.
 */
export async function isEnding(pid: number): Promise<boolean> {
  if (process.platform !== 'linux' || (await commandLineOf(pid)) !== '') return false;
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
  const isZombie = /^State:\tZ/m.test(status) && /^Threads:\t[01]$/m.test(status);
  return status !== '' && !isZombie;
}

/** The file that a process runs, without symbolic links. Undefined if that cannot be known: only Linux says it. */
export async function programOf(pid: number): Promise<string | undefined> {
  return readlink(`/proc/${pid}/exe`).catch(() => undefined);
}

/**
 * Whether what listens on a port of 127.0.0.1 runs as the same user as this process: while our server is not there,
 * another user's can take its port. Where the system does not say it, the port is taken to be ours.
 */
export async function isListenerOurs(port: number): Promise<boolean> {
  const table = await readFile('/proc/net/tcp', 'utf8').catch(() => undefined);
  if (table === undefined) return true;
  const local = `0100007F:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  const listeners = table.split('\n').flatMap((line) => {
    const [, address, , state, , , , user] = line.trim().split(/\s+/);
    return address === local && state === LISTENING ? [Number(user)] : [];
  });
  return listeners.length > 0 && listeners.every((user) => user === userId());
}

const LISTENING = '0A';

/** Not the owner of `/proc/<pid>`: that is root for every process that may not be traced. */
async function userOf(pid: number): Promise<number | undefined> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
  const [, real, effective] = /^Uid:\t(\d+)\t(\d+)/m.exec(status) ?? [];
  return real !== undefined && real === effective ? Number(real) : undefined;
}

function userId(): number | undefined {
  return process.geteuid?.();
}

const POLL_MS = 20;

/** Ends the processes of a group: asks them to, and kills those that are still there after `graceMs`. */
export async function endGroup(group: number, graceMs: number): Promise<void> {
  signalGroup(group, 'SIGTERM');
  for (const end = performance.now() + graceMs; performance.now() < end; await sleep(POLL_MS)) {
    if (!signalGroup(group, 0)) return;
  }
  signalGroup(group, 'SIGKILL');
}

/** False if nobody is there. */
function signalGroup(group: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(-group, signal);
  } catch {
    return false;
  }
}

/** A port of 127.0.0.1 on which nobody listens at the moment. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (!address || typeof address === 'string') throw new Error('no TCP port could be had on 127.0.0.1');
  return address.port;
}
