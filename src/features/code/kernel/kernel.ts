import { randomUUID } from 'node:crypto';
import { withBait } from './bait.ts';
import { frameReader, type HostFrame, type KernelFrame, type ReadyFrame } from './frames.ts';
import { exceededLimits, processorDelayMs, watchGroup, type GroupUsage } from './group-watch.ts';
import type { CallReply } from './kernel-calls.ts';
import { KernelProcess, signal } from './kernel-process.ts';
import { kernelSetup, type WallSetup } from './kernel-setup.ts';
import type { OutputPart } from '../../../core/output-parts.ts';
import { NamedError } from '../../../lib/errors.ts';
import { maskedEnd } from './masked-end.ts';
import { MaskedOutput } from './masked-output.ts';
import {
  RunningCell,
  type CellEnd,
  type CellStop,
  type InterruptCause,
  type KernelEnd,
  type Names,
  type CellRunOptions,
} from './running-cell.ts';
import { limitRunning } from './running-limit.ts';
import { resolveFolders, type SandboxFolders } from './sandbox-folders.ts';
import type { AllowedNetwork } from './sandbox-network.ts';
import { TimeLimit } from './time-limit.ts';
import type { Wall } from './wall.ts';

export interface ResourceLimits {
  /** The resident memory of all processes of the kernel together. */
  memoryBytes: number;
  /** Processors, rounded up to whole ones. */
  cpus: number;
  /** Processes; where Linux counts them, their threads, too. */
  processes: number;
  /** The output of one cell, in UTF-8. Further output is counted and discarded. */
  outputBytes: number;
}

export interface KernelOptions {
  /** From `probeWalls`. */
  wall: Wall;
  /** Existing folders, owned by the user `uid` if there is one. No other user should be able to enter them. */
  folders: SandboxFolders;
  /** The user of the sandbox, required if `wall.hasOwnUser`. Kernels of one sandbox share it. */
  uid?: number | undefined;
  /** Variables of cells, in addition to `PATH`, `HOME`, `TMPDIR`, `LANG`, `TERM`, `NO_COLOR` and those of the proxy. */
  env: Record<string, string>;
  /** The network that its code may access; unset: none. */
  network?: AllowedNetwork | undefined;
  /** The values that are masked in all texts that leave the kernel, except in calls. */
  hidden?: HiddenTexts | undefined;
  limits: ResourceLimits;
}

/** Values that texts must not contain. */
export interface HiddenTexts {
  values: readonly string[];
  /** Replaces each of the values in a text. */
  mask: (text: string) => string;
}

const NOTHING_HIDDEN: HiddenTexts = { values: [], mask: (text) => text };

/** A cell was not run, because its kernel had ended. */
export class KernelEnded extends NamedError {
  readonly end: KernelEnd;

  constructor(end: KernelEnd) {
    super(`the kernel has ended (${end.reason}: ${end.detail}): start another one`);
    this.end = end;
  }
}

/** How long code may ignore an interrupt, without the time in which it waits for a processor. */
const INTERRUPT_MS = 5000;
/** The kept bytes of output by threads and processes of earlier cells between two cells. */
const MAX_STRAY_BYTES = 65_536;

/** One stateful interpreter behind a wall. It runs one cell at a time. */
export class Kernel {
  /** Resolves when all processes of the kernel have ended and their output has been read. */
  readonly ended: Promise<KernelEnd>;
  readonly #process: KernelProcess;
  readonly #limits: ResourceLimits;
  readonly #hidden: HiddenTexts;
  readonly #ready = Promise.withResolvers<ReadyFrame>();
  /** The process of the interpreter. */
  #pid = 0;
  #cell: RunningCell | undefined;
  /** The limit is paused while the cell waits for replies. */
  #limit: TimeLimit | undefined;
  #endInterruptLimit: (() => void) | undefined;
  #hasSignalled = false;
  /** Whether the caller has received calls to which it has not replied yet. */
  #isSuspended = false;
  /** Set before the process is killed, or when it has ended by itself. */
  #end: KernelEnd | undefined;
  #names: Names = { names: [], nameCount: 0 };
  #memoryBytes = 0;
  #stray: Buffer[] = [];
  #strayBytes = 0;
  #isStrayCut = false;

  private constructor(
    started: KernelProcess,
    { limits, hidden = NOTHING_HIDDEN }: Pick<KernelOptions, 'limits' | 'hidden'>,
  ) {
    this.#process = started;
    this.#limits = limits;
    this.#hidden = hidden;
    const reader = frameReader((frame) => this.#take(frame));
    started.channel.on('data', (chunk: Buffer) => reader.push(chunk));
    started.output.on('data', (chunk: Buffer) => this.#takeBytes(chunk));
    const stopWatching = watchGroup(started.group, (usage) => this.#check(usage));
    this.ended = started.exited.then((detail) => {
      stopWatching();
      return this.#finish(detail);
    });
  }

  /**
   * Starts a kernel. Once it is ready, tests from inside have confirmed that the wall refuses what it must.
   *
   * @throws Error with the failure
   */
  static async start(options: KernelOptions): Promise<Kernel> {
    const folders = await resolveFolders(options.folders);
    const { wall, network } = options;
    const kernel = new Kernel(await KernelProcess.spawn({ wall, folders, network }, 'start.py'), options);
    try {
      await withBait((bait) => kernel.#open(kernelSetup(options, folders, bait)));
      return kernel;
    } catch (error) {
      await kernel.stop('it could not start');
      throw error;
    }
  }

  /** How long the code of a waiting cell may still run, in milliseconds. */
  get leftMs(): number {
    return this.#limit?.leftMs ?? 0;
  }

  /** The last measured memory of all its processes. */
  get memoryBytes(): number {
    return this.#memoryBytes;
  }

  /**
   * Runs a cell until it ends or makes calls. The end of the kernel also ends the cell.
   *
   * @throws KernelEnded if the kernel had ended before
   */
  async run({ id, code }: { id: string; code: string }, options: CellRunOptions): Promise<CellStop> {
    const { outputBytes } = this.#limits;
    const output = new MaskedOutput(this.#hidden, options.onOutput);
    const onOutput = (part: OutputPart): void => output.add(part);
    const { timeoutMs } = options;
    const shown = { timeoutMs, onOutput, hidden: this.#hidden, onCut: () => output.cut() };
    const cell = this.#begin(new RunningCell(id, outputBytes, this.#names, shown), options);
    void cell.ended.then(() => output.flush());
    this.#passStray(cell);
    const { mark, token } = cell;
    this.#send({ type: 'run', id, code, outputBytes, mark, token, modules: options.modules ?? '' });
    return this.#nextStop(cell);
  }

  /**
   * Stores the variables of the user in their folder, or restores them from there. This runs code of the values, so it
   * is limited and interrupted like a cell. The output of this code is shown with the next cell.
   *
   * @throws KernelEnded if the kernel had ended before
   */
  async keepVariables(task: 'save' | 'restore', { timeoutMs }: Pick<CellRunOptions, 'timeoutMs'>): Promise<CellEnd> {
    const id = `${task} ${randomUUID()}`;
    const onOutput = ({ channel, text }: OutputPart): void => {
      if (channel !== 'notice') this.#keepStray(Buffer.from(text));
    };
    const stray = { timeoutMs, onOutput, hidden: this.#hidden, onCut: () => (this.#isStrayCut = true) };
    const cell = this.#begin(new RunningCell(id, MAX_STRAY_BYTES, this.#names, stray), { timeoutMs });
    this.#send({ type: 'variables', id, task, mark: cell.mark });
    const stop = await this.#nextStop(cell);
    if (stop.status === 'calls') throw new Error('a task with the variables has asked for calls');
    return stop.end;
  }

  /**
   * Replies to all calls that the cell has made last, unless an interrupt already has, and continues the cell.
   *
   * @param spentMs the part of the wait that counts against the time limit, in milliseconds
   */
  async resume(answers: CallReply[], { spentMs }: { spentMs: number }): Promise<CellStop> {
    const cell = this.#waitingCell();
    const isAnswered = !cell.calls.isWaiting;
    if (!isAnswered) cell.calls.answer(answers);
    if (this.#limit?.spend(spentMs)) this.#limit.start();
    else this.#signalInterrupt(cell, 'timeout');
    // After an interrupt, so that the code is interrupted at the calls.
    if (!isAnswered) this.#send({ type: 'results', answers });
    return this.#nextStop(cell);
  }

  /** Interrupts a cell that waits for replies, and runs it to its end. */
  async abandon(): Promise<CellEnd> {
    const cell = this.#waitingCell();
    this.interrupt();
    const stop = await this.#nextStop(cell);
    if (stop.status === 'calls') throw new Error('a cell that was interrupted has asked for calls');
    return stop.end;
  }

  /**
   * Raises KeyboardInterrupt in the running cell. Its waiting and later calls fail. A kernel that ignores the interrupt
   * for 5 s, without the time in which it waits for a processor, is ended as `unresponsive`.
   */
  interrupt(cause: InterruptCause = 'interrupted'): void {
    const cell = this.#cell;
    if (!cell) return;
    this.#signalInterrupt(cell, cause);
    // After the interrupt, so that the code is interrupted at the calls.
    this.#refuseCalls(cell);
  }

  /** Ends all processes of the kernel. */
  async stop(reason: string): Promise<void> {
    this.#kill({ reason: 'stopped', detail: reason });
    await this.ended;
  }

  #begin(cell: RunningCell, { timeoutMs }: Pick<CellRunOptions, 'timeoutMs'>): RunningCell {
    if (this.#end) throw new KernelEnded(this.#end);
    if (this.#cell) throw new Error(`cell ${this.#cell.id} is running: a kernel runs one at a time`);
    this.#cell = cell;
    void cell.ended.then((end) => this.#rest(end));
    this.#limit = new TimeLimit(timeoutMs, () => this.interrupt('timeout'));
    this.#limit.start();
    return cell;
  }

  async #open(setup: WallSetup): Promise<void> {
    const ended = this.ended.then(({ detail }) => detail);
    const pid = await this.#process.putUpWall(setup, { what: 'kernel', ready: this.#ready.promise, ended });
    const outside = this.#process.pidOutside(pid);
    if (outside === undefined) throw new Error('the kernel did not start: its process was not found');
    this.#pid = outside;
    this.#process.offerToOomKiller();
  }

  #take(frame: KernelFrame | undefined): void {
    if (!frame) this.#kill({ reason: 'died', detail: 'it has sent what is no frame' });
    else if (frame.type === 'ready' || frame.type === 'failed') this.#ready.resolve(frame);
    // Other frames are forged, or belong to a cell whose end was forged.
    else if (frame.id === this.#cell?.id) this.#takeOfCell(this.#cell, frame);
  }

  #takeOfCell(cell: RunningCell, frame: Extract<KernelFrame, { id: string }>): void {
    if (frame.type === 'calls') this.#takeCalls(cell, frame);
    else cell.take(frame);
    if (frame.type === 'started' && cell.isInterrupted) this.#raiseInterrupt();
  }

  #takeCalls(cell: RunningCell, { token, calls }: Extract<KernelFrame, { type: 'calls' }>): void {
    if (token !== cell.token || cell.hasCodeEnded) return;
    if (!cell.calls.take(calls))
      this.#kill({ reason: 'died', detail: 'it has sent calls that do not follow the last ones' });
    else if (cell.isInterrupted) this.#refuseCalls(cell);
    else {
      this.#limit?.stop();
      cell.output.flush();
      cell.calls.report();
    }
  }

  #takeBytes(chunk: Buffer): void {
    if (this.#cell) this.#cell.takeBytes(chunk);
    else this.#keepStray(chunk);
  }

  #keepStray(chunk: Buffer): void {
    const kept = chunk.subarray(0, MAX_STRAY_BYTES - this.#strayBytes);
    this.#strayBytes += kept.length;
    if (kept.length > 0) this.#stray.push(kept);
    this.#isStrayCut ||= kept.length < chunk.length;
  }

  #passStray(cell: RunningCell): void {
    if (this.#strayBytes > 0)
      cell.takeBytes(Buffer.from('[everturn] output of processes that earlier cells have started:\n'));
    for (const chunk of this.#stray) cell.takeBytes(chunk);
    if (this.#isStrayCut) cell.output.cut();
    this.#stray = [];
    this.#strayBytes = 0;
    this.#isStrayCut = false;
  }

  /** The next stop of the cell: calls, or its end. */
  async #nextStop(cell: RunningCell): Promise<CellStop> {
    this.#isSuspended = false;
    const stop = await Promise.race([
      cell.ended.then((end) => ({ status: 'ended' as const, end: maskedEnd(end, this.#hidden) })),
      cell.calls.asked.then((calls) => ({ status: 'calls' as const, calls })),
    ]);
    this.#isSuspended = stop.status === 'calls';
    if (stop.status === 'ended') {
      // The limit is running again if the code had ended before the replies to its calls.
      this.#limit?.stop();
      this.#cell = undefined;
    }
    return stop;
  }

  #waitingCell(): RunningCell {
    if (!this.#cell || !this.#isSuspended) throw new Error('no cell waits for answers');
    return this.#cell;
  }

  /** Called when the cell has ended. */
  #rest({ names, nameCount }: CellEnd): void {
    this.#limit?.stop();
    this.#endInterruptLimit?.();
    this.#endInterruptLimit = undefined;
    this.#hasSignalled = false;
    this.#names = { names, nameCount };
  }

  #refuseCalls({ calls }: RunningCell): void {
    if (!calls.isWaiting) return;
    const answers = calls.refusals('the cell was interrupted');
    calls.answer(answers);
    this.#send({ type: 'results', answers });
  }

  #signalInterrupt(cell: RunningCell, cause: InterruptCause): void {
    // Another program may have its process id now.
    if (this.#end) return;
    cell.interruptFor(cause);
    if (cell.hasCodeEnded) return;
    // An interpreter that waits for code ignores interrupts, which could be meant for the cell before.
    if (cell.runsCode) this.#raiseInterrupt();
    const detail = `an interrupt was ignored for ${INTERRUPT_MS / 1000} s`;
    const onIgnored = () => this.#kill({ reason: 'unresponsive', detail });
    this.#endInterruptLimit ??= limitRunning(INTERRUPT_MS, () => processorDelayMs(this.#pid), onIgnored);
  }

  #raiseInterrupt(): void {
    if (!this.#hasSignalled) signal(this.#pid, 'SIGINT');
    this.#hasSignalled = true;
  }

  #check(usage: GroupUsage): void {
    this.#memoryBytes = usage.bytes;
    const { memory, processes } = exceededLimits(usage, this.#limits);
    if (memory) this.#kill({ reason: 'out_of_memory', detail: memory });
    if (processes) this.#kill({ reason: 'died', detail: processes });
  }

  #send(frame: HostFrame): void {
    this.#process.send(frame);
  }

  #kill(end: KernelEnd): void {
    this.#end ??= end;
    this.#process.kill();
  }

  #finish(detail: string): KernelEnd {
    const end = (this.#end ??= { reason: 'died', detail });
    this.#cell?.endWith(end);
    return end;
  }
}
