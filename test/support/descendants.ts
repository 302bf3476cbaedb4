import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** `kill -9` of all processes that a process has started, and of theirs: the kernels of a kernel host. Returns their number. */
export async function killDescendants(pid: number): Promise<number> {
  const { stdout } = await run('ps', ['-e', '-o', 'pid=,ppid=']);
  const children = Map.groupBy(
    stdout
      .trim()
      .split('\n')
      .map((line) => line.trim().split(/\s+/).map(Number)),
    ([, parent]) => parent,
  );
  const below = (parent: number): number[] =>
    (children.get(parent) ?? []).flatMap(([child = 0]) => [child, ...below(child)]);
  const all = below(pid);
  for (const one of all) {
    try {
      process.kill(one, 'SIGKILL');
    } catch {
      // It has ended by itself, as `ps` has.
    }
  }
  return all.length;
}
