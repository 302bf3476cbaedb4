import { readdirSync, readFileSync } from 'node:fs';

export interface GroupUsage {
  /** Resident memory. Shared pages are counted in each process. */
  bytes: number;
  /** Their ids. */
  members: string[];
}

type Watcher = (usage: GroupUsage) => void;

/** How often the memory of known processes is read. Code can fill about 100 MiB in this time. */
const READ_MS = 50;
/** Every tenth reading scans for new processes, which takes about 10 µs per process of the machine. */
const READINGS_PER_SCAN = 10;

/** The processes of a group that do not belong to the code: those of bubblewrap, and the watcher of a command. */
const LAUNCHERS = 3;

const watched = new Map<number, { onUsage: Watcher; members: string[] }>();
let timer: NodeJS.Timeout | undefined;
let readings = 0;

/**
 * Reports the memory and the number of processes of a process group every 50 ms, until the returned function is called.
 * The kernels of a process share one reading of /proc.
 */
export function watchGroup(group: number, onUsage: Watcher): () => void {
  watched.set(group, { onUsage, members: [String(group)] });
  timer ??= setInterval(read, READ_MS).unref();
  return () => {
    watched.delete(group);
    if (watched.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  };
}

/** The running processes of a group. */
export function membersOf(group: number): string[] {
  return processIds().filter((pid) => {
    const found = groupOf(pid);
    return found?.group === group && !found.isZombie;
  });
}

function read(): void {
  if (readings++ % READINGS_PER_SCAN === 0) scan();
  for (const { members, onUsage } of watched.values()) {
    onUsage({ bytes: bytesOf(members, 'status', /^VmRSS:\s+(\d+) kB/m), members });
  }
}

function scan(): void {
  for (const one of watched.values()) one.members = [];
  for (const pid of processIds()) watched.get(groupOf(pid)?.group ?? 0)?.members.push(pid);
}

function processIds(): string[] {
  return readdirSync('/proc').filter((name) => /^\d+$/.test(name));
}

function groupOf(pid: string): { group: number; isZombie: boolean } | undefined {
  const stat = readProc(pid, 'stat');
  // proc_pid_stat(5): the program's name in brackets may contain any character; then follow state, parent and group.
  const [state, , group] = stat?.slice(stat.lastIndexOf(')') + 2).split(' ') ?? [];
  // A zombie has neither memory nor files, and remains until its parent has reaped it.
  return group === undefined ? undefined : { group: Number(group), isZombie: state === 'Z' };
}

/** The limits that a group exceeds, as texts. */
export function exceededLimits(
  { bytes, members }: GroupUsage,
  { memoryBytes, processes }: { memoryBytes: number; processes: number },
): { memory?: string; processes?: string } {
  // The faster reading counts pages that forked processes share in each of them, the slower one only once.
  const hasTooMuch = bytes > memoryBytes && (sharedMemoryOf(members) || bytes) > memoryBytes;
  return {
    ...(hasTooMuch && { memory: `more than ${memoryBytes} bytes` }),
    ...(members.length > processes + LAUNCHERS && { processes: `more than ${processes} processes` }),
  };
}

/** The memory of processes with the part of the pages that they share: exact, but slower to read. */
function sharedMemoryOf(members: string[]): number {
  return bytesOf(members, 'smaps_rollup', /^Pss:\s+(\d+) kB/m);
}

function bytesOf(members: string[], file: string, line: RegExp): number {
  return members.reduce((sum, pid) => sum + Number(line.exec(readProc(pid, file) ?? '')?.[1] ?? 0) * 1024, 0);
}

/** How long a process has been ready to run without a processor, since its start; 0 if Linux does not count it. */
export function processorDelayMs(pid: number): number {
  // https://docs.kernel.org/scheduler/sched-stats.html: the running time, then the waiting time, in nanoseconds.
  const [, delay = '0'] = readProc(String(pid), 'schedstat')?.split(' ') ?? [];
  return Number(delay) / 1e6;
}

export function readProc(pid: string, file: string): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8');
  } catch {
    return undefined;
  }
}
