import { spawn, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/** The messages to the reaper, one JSON line each. */
export type ReaperMessage =
  | { watch: number; signal: NodeJS.Signals } // a negative one is a process group, as for kill(2)
  | { release: number }
  /** Processes whose command line contains this path. */
  | { folder: string };

const PROGRAM = fileURLToPath(new URL('reaper-process.ts', import.meta.url));

const TEMPORARY = /^\/.*\/everturn-[a-z-]+-\w{6}(\/|$)/;

let reaper: ChildProcess | undefined;

/**
 * Kills a child when this process ends, however it ends: set-ups that fail, Ctrl-C, and SIGKILL, after which no handler of
 * this process runs. A second process does it, when its standard input closes.
 * @param signal what ends the child at once and leaves nothing of it behind
 */
export function killAtEnd<T extends ChildProcess>(child: T, signal: NodeJS.Signals = 'SIGKILL'): T {
  const { pid } = child;
  if (pid === undefined) return child;
  send({ watch: pid, signal });
  // Its process id may be given to another program.
  child.once('exit', () => send({ release: pid }));
  return child;
}

/** The same for a process that leads a group of its own (`detached`), with all of the group. */
export function killGroupAtEnd<T extends ChildProcess>(leader: T): T {
  const { pid } = leader;
  if (pid === undefined) return leader;
  send({ watch: -pid, signal: 'SIGKILL' });
  leader.once('exit', () => send({ release: -pid }));
  return leader;
}

/**
 * Kills, when this process ends, all processes whose command line contains the path of a temporary folder.
 * @param folder as `mkdtemp` names it, or one inside of it: a shorter path could be that of other programs
 */
export function killUsersAtEnd(folder: string): void {
  if (!TEMPORARY.test(folder)) throw new Error(`${folder} is no temporary folder of a test`);
  send({ folder });
}

function send(message: ReaperMessage): void {
  reaper ??= start();
  reaper.stdin?.write(`${JSON.stringify(message)}\n`);
}

function start(): ChildProcess {
  // In a process group of its own it survives the terminal's Ctrl-C.
  const child = spawn(process.execPath, [PROGRAM], { detached: true, stdio: ['pipe', 'ignore', 'ignore'] });
  child.unref();
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- a pipe is a socket
  (child.stdin as unknown as { unref: () => void }).unref();
  return child;
}
