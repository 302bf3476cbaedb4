import { readdir, readFile } from 'node:fs/promises';
import type { ProcessorTime } from './report.ts';

interface Process {
  pid: number;
  parent: number;
  /** The first 15 characters of the program's name. */
  name: string;
  /** The time of all its threads, those that have ended included, and of its children that have ended. */
  ms: number;
}

/** Linux counts in hundredths of a second on all common architectures, whatever the kernel's own clock. */
const MS_PER_TICK = 10;

/**
 * The processor time used until now by Everturn, by its process ids, and by the Temporal and PostgreSQL servers
 * that this process has started. Undefined on systems without `/proc`.
 */
export async function processorTime(everturn: number[]): Promise<ProcessorTime | undefined> {
  if (process.platform !== 'linux') return undefined;
  const processes = await listProcesses();
  const withChildren = (roots: Process[]): number =>
    roots.reduce((sum, { pid, ms }) => sum + ms + withChildren(processes.filter(({ parent }) => parent === pid)), 0);
  const servers = (name: string): Process[] =>
    processes.filter((one) => one.parent === process.pid && one.name.startsWith(name));
  return {
    ours: withChildren(processes.filter(({ pid }) => everturn.includes(pid))),
    temporal: withChildren(servers('temporal')),
    postgres: withChildren(servers('postgres')),
  };
}

async function listProcesses(): Promise<Process[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const processes = pids.map(async (pid) => {
    // A process may end at any moment.
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
    return stat ? [parse(stat)] : [];
  });
  return (await Promise.all(processes)).flat();
}

/** See proc_pid_stat(5). The name may contain spaces and parentheses. */
function parse(stat: string): Process {
  const [, pid, name = '', rest = ''] = /^(\d+) \((.*)\) (.*)$/s.exec(stat) ?? [];
  const fields = rest.split(' ');
  // Fields 14 to 17, where `rest` begins with field 3: utime, stime, cutime, cstime.
  const ticks = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0);
  return { pid: Number(pid), parent: Number(fields[1]), name, ms: ticks * MS_PER_TICK };
}
