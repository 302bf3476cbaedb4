import { execFile } from 'node:child_process';
import { readdir, readFile } from 'node:fs/promises';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** The command line of a process; empty if the process does not exist or is a zombie. */
export async function commandLineOf(pid: number): Promise<string> {
  try {
    if (process.platform !== 'linux') return (await run('ps', ['-ww', '-o', 'args=', '-p', String(pid)])).stdout.trim();
    // Without `ps`, which slim container images lack.
    return (await readFile(`/proc/${pid}/cmdline`, 'utf8')).split('\0').join(' ').trimEnd();
  } catch {
    return '';
  }
}

/** A process of the current user. `commandLine` is the program's name and its arguments, joined by spaces. */
export interface Process {
  pid: number;
  commandLine: string;
}

/**
 * Lists the processes that run as the current user. Those of other users are excluded because any process can choose
 * its own command line.
 */
export async function listOwnProcesses(): Promise<Process[]> {
  const ownId = process.geteuid?.();
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

/** Read from `status`, because the owner of `/proc/<pid>` is root for every process that cannot be traced. */
async function userOf(pid: number): Promise<number | undefined> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
  const [, real, effective] = /^Uid:\t(\d+)\t(\d+)/m.exec(status) ?? [];
  return real !== undefined && real === effective ? Number(real) : undefined;
}
