import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { killAtEnd } from '../test/support/reaper.ts';
import type { Setting } from './setting.ts';

const TREE = fileURLToPath(new URL('..', import.meta.url));

/** A process of Everturn. */
export interface EverturnProcess {
  pid: number;
  /** Its resident memory, in megabytes. */
  memoryMb: () => Promise<number>;
}

/** Resolves when the process has printed `ready`. */
export async function startEverturn(
  command: 'start' | 'api' | 'worker',
  ready: string,
  env: Record<string, string>,
  cleanup: Setting['cleanup'],
  tree = TREE,
): Promise<EverturnProcess> {
  const { PATH = '', HOME = '' } = process.env;
  const child = spawn(process.execPath, [path.join(tree, 'src/main.ts'), command], {
    env: { PATH, HOME, LOG_LEVEL: 'warn', ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  killAtEnd(child);
  cleanup.push(() => stop(child));
  const listening = Promise.withResolvers<void>();
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text;
    if (output.includes(ready)) listening.resolve();
  });
  child.once('error', listening.reject);
  child.once('exit', (code) => listening.reject(new Error(`everturn ${command} exited with ${code}:\n${output}`)));
  await listening.promise;
  const { pid = Number.NaN } = child;
  return { pid, memoryMb: () => memoryMb(pid) };
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  child.kill();
  await exited;
}

/** The resident memory of a process, in megabytes. */
export async function memoryMb(pid: number): Promise<number> {
  const { stdout } = await promisify(execFile)('ps', ['-o', 'rss=', '-p', String(pid)]);
  return Number(stdout) / 1024;
}
