import { StringDecoder } from 'node:string_decoder';
import { onAbort } from '../../../lib/abort.ts';
import { withBait, type Bait } from '../kernel/bait.ts';
import { CellOutput } from '../kernel/cell-output.ts';
import { frameReader, type ReadyFrame } from '../kernel/frames.ts';
import { exceededLimits, watchGroup } from '../kernel/group-watch.ts';
import type { ResourceLimits, KernelOptions } from '../kernel/kernel.ts';
import { KernelProcess } from '../kernel/kernel-process.ts';
import { foldersInside, wallSetup } from '../kernel/kernel-setup.ts';
import { resolveFolders, type SandboxFolders } from '../kernel/sandbox-folders.ts';
import type { AllowedNetwork } from '../kernel/sandbox-network.ts';
import { commandEnvironment } from './command-environment.ts';

/** The sandbox in which commands run. */
export type CommandSandbox = Pick<KernelOptions, 'wall' | 'folders' | 'uid'> & {
  /** The limits of each command with all its processes. */
  limits: Pick<ResourceLimits, 'memoryBytes' | 'cpus' | 'processes'>;
};

export interface CommandOptions {
  /** A line or a whole script for bash, of at most 131,071 bytes. */
  text: string;
  /** A path behind the wall. */
  cwd: string;
  /** The environment of the code that runs it. */
  env: Record<string, string>;
  /** The network that it may access; unset: none. */
  network?: AllowedNetwork | undefined;
  /** Milliseconds, without the start of its processes. */
  timeoutMs: number;
  /** More output is counted and discarded. */
  outputBytes: number;
  /** No beginnings of these values are left where output is cut. */
  hidden?: { readonly values: readonly string[] };
  /** Ends the command. */
  signal: AbortSignal;
}

export interface CommandEnd {
  /** The output of all its processes, in the order of arrival, without escape sequences. */
  output: string;
  /** As in a shell: 124 at the time limit, 130 if it was interrupted, 137 at another limit. */
  exitCode: number;
  discardedBytes: number;
  timedOut: boolean;
}

/** Why a command was ended. */
interface Cause {
  exitCode: number;
  /** For the reader of its output. */
  notice?: string;
}

/** Linux starts no program with a longer argument. */
const MAX_TEXT_BYTES = 131_071;

const TIMED_OUT: Cause = { exitCode: 124 };
const INTERRUPTED: Cause = { exitCode: 130 };
const STOPPED: Cause = { exitCode: 143 };

/** One command, from the start of its processes to their end. */
export class RunningCommand {
  readonly #sandbox: CommandSandbox;
  readonly #options: CommandOptions;
  readonly #output: CellOutput;
  readonly #ended = Promise.withResolvers<undefined>();
  #process: KernelProcess | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** Set before its processes are killed. */
  #cause: Cause | undefined;

  constructor(sandbox: CommandSandbox, options: CommandOptions) {
    this.#sandbox = sandbox;
    this.#options = options;
    this.#output = new CellOutput(options.outputBytes, () => undefined, { hidden: options.hidden });
  }

  /** @throws Error if it could not be started behind its wall */
  async run(): Promise<CommandEnd> {
    const problem = textProblem(this.#options.text);
    if (problem) return { output: problem, exitCode: 126, discardedBytes: 0, timedOut: false };
    const stopListening = onAbort(this.#options.signal, () => this.#kill(INTERRUPTED));
    try {
      return await this.#runBehindWall();
    } finally {
      clearTimeout(this.#timer);
      stopListening();
      this.#ended.resolve(undefined);
    }
  }

  async stop(): Promise<void> {
    this.#kill(STOPPED);
    await this.#ended.promise;
  }

  async #runBehindWall(): Promise<CommandEnd> {
    const { wall, folders: given, limits } = this.#sandbox;
    const folders = await resolveFolders(given);
    const process = await KernelProcess.spawn({ wall, folders, network: this.#options.network }, 'start_command.py');
    this.#process = process;
    // The command was ended during its start.
    if (this.#cause) process.kill();
    const stopWatching = watchGroup(process.group, (usage) => {
      const { memory, processes } = exceededLimits(usage, limits);
      const detail = memory ?? processes;
      if (detail) this.#kill({ exitCode: 137, notice: `[everturn] the command was ended: it had ${detail}\n` });
    });
    this.#collect(process);
    try {
      await this.#start(process, folders);
    } catch (error) {
      process.kill();
      await process.exited;
      if (!this.#cause) throw error;
    } finally {
      await process.exited;
      stopWatching();
    }
    return this.#end(process);
  }

  #collect(process: KernelProcess): void {
    const decoder = new StringDecoder('utf8');
    process.output.on('data', (chunk: Buffer) => {
      // Excess output is only counted.
      if (this.#output.isFull) this.#output.discard(chunk.length);
      else this.#output.add('stdout', decoder.write(chunk));
    });
    process.output.on('end', () => this.#output.add('stdout', decoder.end()));
  }

  /** Sends the command once tests have confirmed the wall. */
  async #start(process: KernelProcess, folders: SandboxFolders): Promise<void> {
    await withBait((bait) => this.#confine(process, folders, bait));
    process.offerToOomKiller();
    const { text, cwd, env: given, network, timeoutMs } = this.#options;
    const { wall } = this.#sandbox;
    const env = commandEnvironment(given, { python: wall.python, inside: foldersInside(wall, folders), network });
    process.send({ type: 'run', text, cwd, env });
    this.#timer = setTimeout(() => this.#kill(TIMED_OUT), timeoutMs);
  }

  async #confine(process: KernelProcess, folders: SandboxFolders, bait: Bait): Promise<void> {
    const ready = Promise.withResolvers<ReadyFrame>();
    const reader = frameReader((frame) => {
      if (frame?.type === 'ready' || frame?.type === 'failed') ready.resolve(frame);
    });
    process.channel.on('data', (chunk: Buffer) => reader.push(chunk));
    const setup = wallSetup({ ...this.#sandbox, network: this.#options.network }, folders, bait);
    await process.putUpWall(setup, { what: 'command', ready: ready.promise, ended: process.exited });
  }

  #end(process: KernelProcess): CommandEnd {
    // Excess output was discarded before `add`, which would otherwise cut the output.
    if (this.#cause || this.#output.isFull) this.#output.cut();
    const { parts, discardedBytes } = this.#output.end();
    const output = parts.map(({ text }) => text).join('') + (this.#cause?.notice ?? '');
    const exitCode = this.#cause?.exitCode ?? process.exitCode;
    return { output, exitCode, discardedBytes, timedOut: this.#cause === TIMED_OUT };
  }

  #kill(cause: Cause): void {
    if (this.#process?.hasExited) return;
    this.#cause ??= cause;
    this.#process?.kill();
  }
}

function textProblem(text: string): string | undefined {
  if (text.includes('\0')) return '[everturn] the command was not started: it contains a NUL character\n';
  if (Buffer.byteLength(text) <= MAX_TEXT_BYTES) return undefined;
  return `[everturn] the command was not started: it has more than ${MAX_TEXT_BYTES} bytes\n`;
}
