import { execFile } from 'node:child_process';
import { readdir, readFile, readlink } from 'node:fs/promises';
import { promisify } from 'node:util';
import { setTimeout as sleep } from 'node:timers/promises';
import { once } from 'node:events';
import { createServer } from 'node:net';

const run = promisify(execFile);

/**
 * When a process was started, in a form of the system: with its id it identifies the process, since ids are reused.
 * Undefined if the process does not exist.
 */
export async function startOf(pid: number): Promise<string | undefined> {
  try {
    if (process.platform !== 'linux') {
      const { stdout } = await run('ps', ['-o', 'lstart=', '-p', String(pid)], {
        env: { ...process.env, LC_ALL: 'C' },
      });
      return stdout.trim() || undefined;
    }
    const [boot, stat] = await Promise.all([bootId(), readFile(`/proc/${pid}/stat`, 'utf8')]);
    // proc_pid_stat(5): field 22, in ticks since the boot. The name of the program, in brackets, may contain any character.
    const ticks = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[22 - 3];
    return `${boot} ${ticks}`;
  } catch {
    return undefined;
  }
}

/** Identifies the machine since its start; empty on systems without such an id. */
export async function bootId(): Promise<string> {
  return (await readFile('/proc/sys/kernel/random/boot_id', 'utf8').catch(() => '')).trim();
}

/** The start of the machine and the container in which ids of processes are valid. */
export async function pidScope(): Promise<string> {
  return `${await bootId()} ${await pidNamespace()}`;
}

/** The namespace in which the ids of this process and its children are valid: each container has its own. */
export async function pidNamespace(): Promise<string> {
  return readlink('/proc/self/ns/pid').catch(() => '');
}

/** A process, as its id and its start identify it. */
export interface StartedProcess {
  pid: number;
  start: string | undefined;
}

/**
 * Whether a process still has its files and ports. A process that was killed has them until the system has freed its memory,
 * which takes up to half a second on a busy machine; a zombie has none.
 */
export async function isRunning({ pid, start }: StartedProcess): Promise<boolean> {
  if (start === undefined || (await startOf(pid)) !== start) return false;
  if (process.platform !== 'linux') {
    const state = await run('ps', ['-o', 'stat=', '-p', String(pid)]).catch(() => undefined);
    return state !== undefined && !state.stdout.trim().startsWith('Z');
  }
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
  const isZombie = /^State:\tZ/m.test(status) && /^Threads:\t[01]$/m.test(status);
  return status !== '' && !isZombie;
}

/**
 * Whether the process that listens on a port of 127.0.0.1 runs as the current user: while the own server is down,
 * another user's program can take its port. Returns true on systems that do not provide this.
 */
export async function isListenerOurs(port: number): Promise<boolean> {
  const table = await readFile('/proc/net/tcp', 'utf8').catch(() => undefined);
  if (table === undefined) return true;
  const local = `0100007F:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  const listeners = table.split('\n').flatMap((line) => {
    const [, address, , state, , , , user] = line.trim().split(/\s+/);
    return address === local && state === LISTENING ? [Number(user)] : [];
  });
  return listeners.length > 0 && listeners.every((user) => user === process.geteuid?.());
}

const LISTENING = '0A';

/** A process with its parent and its group, by their ids. */
interface ListedProcess {
  pid: number;
  parent: number;
  group: number;
  bytes: () => Promise<number>;
}

/**
 * The memory of process groups in bytes, by the ids of their leaders: that of all their processes and descendants, with the
 * part of the pages that they share. 0 for a group without processes.
 */
export async function memoryOf(groups: ReadonlySet<number>): Promise<Map<number, number>> {
  const found = new Map([...groups].map((group) => [group, 0]));
  await Promise.all(
    (await processesOf(groups)).map(async ({ owner, bytes }) => {
      const size = await bytes();
      found.set(owner, (found.get(owner) ?? 0) + size);
    }),
  );
  return found;
}

/**
 * The processes of groups, each with the group that it belongs to as `owner`: those in it, and their descendants, because
 * Playwright and Puppeteer start a browser in a group of its own.
 */
async function processesOf(groups: ReadonlySet<number>): Promise<(ListedProcess & { owner: number })[]> {
  const listed = new Map((await listProcesses()).map((one) => [one.pid, one]));
  const ownerOf = (one: ListedProcess): number | undefined => {
    // Ids are reused while the list is read, so parents may form a circle.
    const seen = new Set<number>();
    for (let at: ListedProcess | undefined = one; at && !seen.has(at.pid); at = listed.get(at.parent)) {
      if (groups.has(at.group)) return at.group;
      seen.add(at.pid);
    }
    return undefined;
  };
  return [...listed.values()].flatMap((one) => {
    const owner = ownerOf(one);
    return owner === undefined ? [] : [{ ...one, owner }];
  });
}

async function listProcesses(): Promise<ListedProcess[]> {
  if (process.platform !== 'linux') {
    const { stdout } = await run('ps', ['-ax', '-o', 'pid=,ppid=,pgid=,rss='], { maxBuffer: 64 * 1024 * 1024 });
    return stdout.split('\n').map((line) => {
      const [pid = 0, parent = 0, group = 0, kilobytes = 0] = line.trim().split(/\s+/).map(Number);
      return { pid, parent, group, bytes: () => Promise.resolve(kilobytes * 1024) };
    });
  }
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  return Promise.all(
    pids.map(async (pid) => {
      const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
      // proc_pid_stat(5): fields 4 and 5.
      const [, parent, group] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      return { pid: Number(pid), parent: Number(parent), group: Number(group), bytes: () => memoryOfProcess(pid) };
    }),
  );
}

/** Browsers share most of the memory of their processes, which the resident size counts in each of them. */
async function memoryOfProcess(pid: string): Promise<number> {
  const read = (file: string) => readFile(`/proc/${pid}/${file}`, 'utf8').catch(() => '');
  // Not readable for a process that cannot be traced.
  const [, shared] = /^Pss:\s+(\d+) kB/m.exec(await read('smaps_rollup')) ?? [];
  const [, resident] = shared === undefined ? (/^VmRSS:\s+(\d+) kB/m.exec(await read('status')) ?? []) : [];
  return Number(shared ?? resident ?? 0) * 1024;
}

const POLL_MS = 20;

/** The descendants of a process group that have left it. Once their parents have ended, they cannot be found. */
export async function leaversOf(group: number): Promise<StartedProcess[]> {
  const left = (await processesOf(new Set([group]))).filter((one) => one.group !== group);
  return Promise.all(left.map(async ({ pid }) => ({ pid, start: await startOf(pid) })));
}

/**
 * Sends SIGTERM to a process group and to the processes that have left it, and SIGKILL to those that are left after
 * `graceMs`.
 */
export async function endGroup(group: number, graceMs: number, leavers?: readonly StartedProcess[]): Promise<void> {
  const left = leavers ?? (await leaversOf(group));
  const signalAll = async (signal: NodeJS.Signals | 0): Promise<boolean> => {
    const inGroup = sendSignal(-group, signal);
    const outside = left.map(async (one) => (await isRunning(one)) && sendSignal(one.pid, signal));
    return (await Promise.all(outside)).includes(true) || inGroup;
  };
  await signalAll('SIGTERM');
  for (const end = performance.now() + graceMs; performance.now() < end; await sleep(POLL_MS)) {
    if (!(await signalAll(0))) return;
  }
  await signalAll('SIGKILL');
}

/** Returns false if there is no such process, or, for the negative id of a group, if that has none. */
function sendSignal(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(pid, signal);
  } catch {
    return false;
  }
}

/** Finds a port of 127.0.0.1 that is currently free. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (!address || typeof address === 'string') throw new Error('no TCP port is available on 127.0.0.1');
  return address.port;
}
