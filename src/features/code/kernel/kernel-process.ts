import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { Duplex, type Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { bubblewrapArguments, PROGRAM_PLACE } from './bubblewrap.ts';
import type { ReadyFrame } from './frames.ts';
import { membersOf, readProc } from './group-watch.ts';
import type { WallSetup } from './kernel-setup.ts';
import type { NetworkProxy } from './network-proxy.ts';
import type { SandboxFolders } from './sandbox-folders.ts';
import type { AllowedNetwork } from './sandbox-network.ts';
import { limitsNetwork, NO_NETWORK, type Wall } from './wall.ts';

/** The Python half of kernels and commands. */
const PROGRAM_FOLDER = path.join(import.meta.dirname, 'python');
/** The launcher needs no packages. */
const LAUNCHER = ['-I', '-S', '-B', path.join(PROGRAM_FOLDER, 'own_group.py')];
/** The kept characters of errors that the process writes during its start, such as those of bubblewrap. */
const MAX_COMPLAINT = 4096;
/** A start takes half a second on a quiet machine, and seconds on a loaded one. */
const START_MS = 60_000;
/** How long to wait for the end of killed processes and of their output. */
const DRAIN_MS = 2000;
const POLL_MS = 5;

interface ProcessOptions {
  wall: Wall;
  folders: SandboxFolders;
  network: AllowedNetwork | undefined;
}

/** The processes of one kernel or one command: a process group, which none of them can leave. */
export class KernelProcess {
  readonly channel: Duplex;
  /** The output of the processes outside of Python's `sys.stdout` and `sys.stderr`. */
  readonly output: Readable;
  readonly group: number;
  /** Resolves after the output has been read, with a text about the end of the process. */
  readonly exited: Promise<string>;
  readonly #child: ChildProcess;
  #complaint = '';
  #hasExited = false;

  private constructor(child: ChildProcess, proxy: NetworkProxy | undefined) {
    const { pid, stdout, stderr } = child;
    const channel = child.stdio[3];
    if (pid === undefined || !stdout || !stderr || !(channel instanceof Duplex))
      throw new Error('no process was started');
    this.#child = child;
    this.channel = channel;
    this.output = stdout;
    this.group = pid;
    // The process may end while it is written to.
    channel.on('error', () => undefined);
    stderr.setEncoding('utf8').on('data', (text: string) => {
      this.#complaint = (this.#complaint + text).slice(0, MAX_COMPLAINT);
    });
    this.exited = this.#end(child, proxy);
  }

  /** @param network the network that it may access through a proxy, which ends with it; undefined: none */
  static async spawn({ wall, folders, network }: ProcessOptions, program: 'start.py' | 'start_command.py') {
    if (network && !limitsNetwork(wall.isolation)) throw new Error(NO_NETWORK);
    const isSandbox = wall.isolation === 'sandbox';
    const python = [wall.python, '-I', '-B', path.join(isSandbox ? PROGRAM_PLACE : PROGRAM_FOLDER, program)];
    const readable = wall.pythonFolders;
    const isRoot = process.geteuid?.() === 0;
    const proxy = await network?.openProxy();
    try {
      const behind = { folders, program: PROGRAM_FOLDER, readable, isRoot, proxy: proxy?.socket };
      const bubblewrap = isSandbox ? ['bwrap', ...bubblewrapArguments(behind)] : [];
      const child = spawn(wall.python, [...LAUNCHER, ...bubblewrap, ...python], {
        cwd: '/',
        // The environment of cells is set behind the wall.
        env: { PATH: process.env['PATH'] ?? '/usr/bin:/bin', LANG: 'C.UTF-8' },
        stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
      });
      await once(child, 'spawn');
      return new KernelProcess(child, proxy);
    } catch (error) {
      await proxy?.close();
      throw error;
    }
  }

  send(frame: object): void {
    this.channel.write(`${JSON.stringify(frame)}\n`);
  }

  /**
   * Starts the wall of the processes, and waits until it is up.
   *
   * @param what the kind of the processes
   * @param ready resolves with their response
   * @param ended resolves with a text about their end
   * @returns the process id of the interpreter inside
   * @throws Error with the failure
   */
  async putUpWall(
    setup: WallSetup,
    { what, ready, ended }: { what: 'kernel' | 'command'; ready: Promise<ReadyFrame>; ended: Promise<string> },
  ): Promise<number> {
    this.send(setup);
    const timeout = new AbortController();
    const end = await Promise.race([
      ready,
      ended.then((detail) => ({ reason: `${this.#complaint.trim()} (${detail})` })),
      sleep(START_MS, { reason: `not ready after ${START_MS / 1000} s` }, { signal: timeout.signal, ref: false }),
    ]);
    timeout.abort();
    if ('reason' in end) throw new Error(`the ${what} did not start: ${end.reason}`);
    return end.pid;
  }

  /** The exit code as in a shell: 128 plus the number of the signal that ended the process. Valid after `exited`. */
  get exitCode(): number {
    const { exitCode, signalCode } = this.#child;
    return exitCode ?? 128 + (signalCode ? os.constants.signals[signalCode] : 0);
  }

  /** Whether the program has ended. Processes that it has started may still run. */
  get hasExited(): boolean {
    return this.#hasExited;
  }

  /** Ends all processes at once, including those that are being forked. */
  kill(): void {
    // Afterwards, another group may have the id.
    if (this.#hasExited) return;
    // Right after its start, the process is not in its group yet, and has no children.
    signal(this.group, 'SIGKILL');
    signal(-this.group, 'SIGKILL');
  }

  /** Makes Linux end these processes before others if the machine runs out of memory. */
  offerToOomKiller(): void {
    for (const pid of membersOf(this.group)) {
      try {
        writeFileSync(`/proc/${pid}/oom_score_adj`, '1000');
      } catch {
        // The process has ended, or belongs to a user for whom this process cannot act.
      }
    }
  }

  /** The id of a process on this machine, from its id in bubblewrap's namespace of process ids. */
  pidOutside(inside: number): number | undefined {
    const found = membersOf(this.group).find((pid) => {
      const ids = /^NSpid:\s+(.*)$/m.exec(readProc(pid, 'status') ?? '')?.[1]?.split(/\s+/) ?? [];
      return Number(ids.at(-1)) === inside;
    });
    return found === undefined ? undefined : Number(found);
  }

  async #end(child: ChildProcess, proxy: NetworkProxy | undefined): Promise<string> {
    const closed = once(child, 'close');
    await once(child, 'exit');
    // Kills its children, which also keep its output open.
    signal(-this.group, 'SIGKILL');
    this.#hasExited = true;
    await proxy?.close();
    await Promise.race([Promise.all([closed, this.#groupEnd()]), sleep(DRAIN_MS, undefined, { ref: false })]);
    return child.signalCode ? `signal ${child.signalCode}` : `exit code ${child.exitCode}`;
  }

  /** Waits until Linux has freed the memory and files of the killed processes. Zombies have none. */
  async #groupEnd(): Promise<void> {
    const isThere = () => signal(-this.group, 0) && membersOf(this.group).length > 0;
    for (let waited = 0; waited < DRAIN_MS && isThere(); waited += POLL_MS) await sleep(POLL_MS);
  }
}

/** Signals a process, or a group by its negative id. Returns whether it exists. */
export function signal(pid: number, name: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(pid, name);
  } catch {
    return false;
  }
}
