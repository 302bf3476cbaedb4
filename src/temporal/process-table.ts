import { execFile } from 'node:child_process';
import { readdir, readFile } from 'node:fs/promises';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** A process of this machine; its arguments, the program's own name first, are joined by blanks. */
export interface Process {
  pid: number;
  commandLine: string;
}

/** All processes that can be seen. */
export async function listProcesses(): Promise<Process[]> {
  if (process.platform !== 'linux') {
    const { stdout } = await run('ps', ['-axww', '-o', 'pid=,args='], { maxBuffer: 64 * 1024 * 1024 });
    return stdout.split('\n').map((line) => {
      const [, pid, commandLine = ''] = /^\s*(\d+) (.*)$/.exec(line) ?? [];
      return { pid: Number(pid), commandLine };
    });
  }
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number);
  return Promise.all(pids.map(async (pid) => ({ pid, commandLine: await commandLineOf(pid) })));
}

/** Empty if there is no such process, or one that has ended and nobody waited for. */
export async function commandLineOf(pid: number): Promise<string> {
  try {
    if (process.platform !== 'linux') return (await run('ps', ['-ww', '-o', 'args=', '-p', String(pid)])).stdout.trim();
    // Not by `ps`, which slim container images lack.
    return (await readFile(`/proc/${pid}/cmdline`, 'utf8')).split('\0').join(' ').trimEnd();
  } catch {
    return '';
  }
}
