import type { Execution } from '../../../core/records/sandbox.ts';
import { NEVER_ABORTED, onAbort } from '../../../lib/abort.ts';
import { errorMessage } from '../../../lib/errors.ts';
import type { RestartReason } from '../events.ts';
import type { CallReply, KernelCall } from '../kernel/kernel-calls.ts';
import type { CellEnd, CellStop, KernelEnd, CellRunOptions } from '../kernel/running-cell.ts';
import { KernelEnded, type Kernel } from '../kernel/kernel.ts';
import type { KnownKernel } from '../last-cell.ts';
import type { KernelSnapshot } from '../kernel-snapshot.ts';
import type { KernelState } from '../kernel-state.ts';
import type { Seat, Seats } from './seats.ts';
import type { RestoredVariables, StartedKernel, StoredVariables } from './stored-variables.ts';

/** The start of the first kernel, or of one after another kernel, whose variables are lost unless they were stored. */
export type KernelBegin = { generation: number } | ({ generation: number; previousGeneration: number } & KernelRestart);

export interface KernelRestart {
  reason: RestartReason;
  lost: string[];
  lostCount: number;
  /** The restored variables of the kernel before; absent if none were stored. */
  restored?: Pick<RestoredVariables, 'names' | 'count'>;
}

export interface Cell {
  id: string;
  /** The turn in which it runs. */
  turnId: string;
  code: string;
  /** Milliseconds. */
  timeoutMs: number;
  /** The hash of the modules of its tools. */
  modules: string;
  /** The kernel that the conversation has seen; undefined: none, so that the cell relies on no variables. */
  known: KnownKernel | undefined;
  /** Whether the conversation follows that of the kernel's last cell. */
  isOnBranch: boolean;
  /** Interrupts the cell, or removes it from the queue for a seat. */
  signal: AbortSignal;
  onOutput: CellRunOptions['onOutput'];
}

/** A cell has ended, or waits for the results of its calls. `begun`: the kernel that was started for it. */
export type CellStep = RanCell | StoppedCell;

export interface StoppedCell {
  generation: number;
  begun?: KernelBegin;
  calls: KernelCall[];
}

/** The end of a cell. */
export interface RanCell {
  generation: number;
  begun?: KernelBegin;
  /** `restart`: the restart for this cell, if variables were restored. `stored`: the variables of the next kernel. */
  end:
    | {
        exit: Exclude<Execution['exit'], 'stale' | 'not_started' | 'lost'>;
        cell: CellEnd;
        restart?: KernelRestart;
        stored?: Pick<KernelSnapshot, 'others' | 'otherCount'>;
      }
    | ({ exit: 'stale' } & KernelRestart)
    | { exit: 'not_started'; reason: string };
}

const INTERRUPTED = 'it was interrupted before it could start';

interface ThreadKernelOptions {
  /** @param variables the folder for its variables, if they are to be stored */
  start: (variables?: string) => Promise<Kernel>;
  /** The stored variables of the thread. */
  variables: StoredVariables;
  seats: Seats;
  /** The subject that owns the kernel. */
  subject: string;
  isSubAgent: boolean;
  idleMs: number;
  /** How long the kernel is kept for a waiting cell. */
  suspendMs: number;
}

/** A cell that waits for replies, in a kernel that is kept for it. */
interface WaitingCell {
  id: string;
  suspendTimer: NodeJS.Timeout;
  turnId: string;
  /** Aborted when it no longer waits. */
  over: AbortController;
}

/**
 * The kernel of a thread, which is restarted for the next cell after it has ended. Each start is a generation, with the
 * reason why the one before has ended. A cell that relies on lost variables of an earlier generation does not run. A
 * cell that waits for replies keeps the kernel until they arrive, another cell runs, or it has waited too long.
 */
export class ThreadKernel {
  readonly #options: ThreadKernelOptions;
  #kernel: Kernel | undefined;
  #seat: Seat | undefined;
  /** The generation of the kernel, or of the next one if it has ended; 0: there was none on this host. */
  #generation = 0;
  /** No variable was lost after the start of this generation. */
  #intactSince = 0;
  #names: Pick<CellEnd, 'names' | 'nameCount'> = { names: [], nameCount: 0 };
  /** The restart of a kernel with stored variables, until a result has reported it to the model. */
  #restart: KernelRestart | undefined;
  /** The number of lost variables in the result of the last cell, if its kernel has ended with it. */
  #shownLost: number | undefined;
  /** Why the last kernel has ended. */
  #ended: RestartReason = 'host_lost';
  #idleTimer: NodeJS.Timeout | undefined;
  /** The start of a kernel that was started early; it is reported with its first cell. */
  #startedEarly: KernelBegin | undefined;
  #waiting: WaitingCell | undefined;
  /** Milliseconds since 1970. */
  #usedAt = Date.now();
  #isBusy = false;
  /** Counts the stops of kernels. */
  #stops = 0;
  /** Cells run one after the other. */
  #last: Promise<unknown> = Promise.resolve();

  constructor(options: ThreadKernelOptions) {
    this.#options = options;
    const { snapshot } = options.variables;
    if (!snapshot) return;
    // The snapshot was stored on a host that is lost, and so is its kernel.
    this.#generation = snapshot.generation + 1;
    this.#intactSince = snapshot.intactSince;
  }

  get isRunning(): boolean {
    return this.#kernel !== undefined;
  }

  /** The state of the kernel; undefined if none was started. */
  get state(): KernelState | undefined {
    if (this.#generation === 0) return undefined;
    const { idleMs, suspendMs } = this.#options;
    const inUse = this.#isBusy ? 'busy' : 'ready';
    const status = !this.#kernel ? 'stopped' : this.#waiting ? 'suspended' : inUse;
    const limits = { suspended: suspendMs, ready: idleMs, busy: undefined, stopped: undefined };
    const keptMs = limits[status];
    const expiresAt = keptMs === undefined ? null : this.#usedAt + keptMs;
    const memoryBytes = this.#kernel?.memoryBytes ?? 0;
    return { generation: this.#generation, status, lastUsedAt: this.#usedAt, expiresAt, memoryBytes };
  }

  run(cell: Cell): Promise<CellStep> {
    const ran = this.#last.then(() => this.#run(cell));
    this.#last = ran.catch(() => undefined);
    return ran;
  }

  /** Why a cell no longer waits; undefined if it does. */
  lossOf(id: string): string | undefined {
    if (this.#waiting?.id === id) return undefined;
    return `its kernel was ended or used for other code meanwhile (${this.#ended})`;
  }

  /** Aborted when a waiting cell resumes or is lost: nothing runs for it any more. */
  whileWaiting(id: string): AbortSignal {
    return this.#waiting?.id === id ? this.#waiting.over.signal : AbortSignal.abort();
  }

  /** How long the code of a waiting cell may still run, in milliseconds. */
  get leftMs(): number {
    return this.#kernel?.leftMs ?? 0;
  }

  /** Keeps the kernel of a waiting cell while its calls are executed. */
  keep(id: string): void {
    if (this.#waiting?.id === id) clearTimeout(this.#waiting.suspendTimer);
  }

  /** Sends a waiting cell the replies to its calls. @param spentMs the part of the wait that counts as running time */
  resume(
    { id, signal, turnId }: Pick<Cell, 'id' | 'signal' | 'turnId'>,
    answers: CallReply[],
    { spentMs }: { spentMs: number },
  ): Promise<CellStep> {
    const kernel = this.#kernel;
    if (this.#waiting?.id !== id || !kernel) throw new Error(this.lossOf(id));
    this.#stopWaiting();
    const resumed = this.#inKernel(kernel, { id, signal, turnId }, () => kernel.resume(answers, { spentMs }));
    this.#last = resumed.catch(() => undefined);
    return resumed;
  }

  /** Interrupts a cell if it still waits. */
  async abandon(id: string): Promise<void> {
    const abandoned = this.#last.then(() => (this.#waiting?.id === id ? this.#abandon() : undefined));
    this.#last = abandoned.catch(() => undefined);
    await abandoned;
  }

  /** Ends the kernel. Returns the generation of the next one. */
  async reset(known: KnownKernel | undefined): Promise<number> {
    await this.stop('reset');
    this.#generation = this.#nextGeneration(known);
    return this.#generation;
  }

  /** Starts the next kernel before a cell needs it, unless another kernel would be evicted for it. */
  startEarly(): void {
    const { seats, subject } = this.#options;
    const started = this.#last.then(async () => {
      if (this.#kernel || !seats.hasRoomFor(subject)) return;
      this.#startedEarly = await this.#start({ known: undefined, signal: NEVER_ABORTED });
      this.#rest();
    });
    // After a failure, the first cell starts the kernel, or reports why it cannot.
    this.#last = started.catch(() => undefined);
  }

  async stop(reason: RestartReason): Promise<void> {
    clearTimeout(this.#idleTimer);
    this.#stopWaiting();
    this.#stops += 1;
    const kernel = this.#kernel;
    this.#gone(reason);
    await kernel?.stop(reason);
    if (reason === 'reset' || reason === 'fork') await this.#options.variables.drop();
  }

  async #run(cell: Cell): Promise<CellStep> {
    await this.#abandon();
    this.#isBusy = true;
    clearTimeout(this.#idleTimer);
    const { known, signal } = cell;
    if (signal.aborted) return this.#notStarted(INTERRUPTED);
    if (this.#generation > 0 && !cell.isOnBranch) await this.stop('fork');
    let begun = this.#startedEarly;
    this.#startedEarly = undefined;
    if (!this.#kernel) {
      try {
        begun = await this.#start(cell);
      } catch (error) {
        return this.#notStarted(signal.aborted ? INTERRUPTED : errorMessage(error));
      }
    }
    const generation = this.#generation;
    const started = begun && { begun };
    if (signal.aborted) return { ...this.#notStarted(INTERRUPTED), ...started };
    if (this.#isStale(known)) {
      const { reason, lost, lostCount, restored } = begun && 'reason' in begun ? begun : this.#lostBefore();
      this.#restart = undefined;
      this.#rest();
      return { generation, ...started, end: { exit: 'stale', reason, lost, lostCount, ...(restored && { restored }) } };
    }
    return { ...started, ...(await this.#runIn(cell)) };
  }

  /** Whether a cell was written for variables that were lost. */
  #isStale(known: KnownKernel | undefined): boolean {
    const shown = this.#shownLost;
    this.#shownLost = undefined;
    if (!known || known.isLost) return false;
    // Variables that were stored but could not be restored were not reported.
    if (known.generation === this.#generation) return shown !== undefined && (this.#restart?.lostCount ?? 0) > shown;
    return known.generation < this.#intactSince || known.generation > this.#generation;
  }

  async #start({ known, signal }: Pick<Cell, 'known' | 'signal'>): Promise<KernelBegin> {
    const { seats, ...owner } = this.#options;
    const stops = this.#stops;
    const seat = await seats.take({ ...owner, evict: () => this.stop('evicted') }, signal);
    const { variables } = this.#options;
    let started: StartedKernel;
    try {
      started = await variables.start(this.#options.start);
    } catch (error) {
      seat.leave();
      throw error;
    }
    const { kernel, restored } = started;
    // `stop` was called meanwhile: the thread has ended, or the host stops.
    if (this.#stops !== stops) {
      seat.leave();
      await kernel.stop(this.#ended);
      throw new Error(`the kernel was ended (${this.#ended}) while it was started`);
    }
    this.#kernel = kernel;
    void kernel.ended.then((end) => this.#noteEnd(kernel, end));
    this.#seat = seat;
    const generation = this.#nextGeneration(known);
    this.#generation = generation;
    if (!restored || restored.lostCount > 0 || restored.isBehind) this.#intactSince = generation;
    if (generation === 1) return { generation };
    const begun = { generation, previousGeneration: generation - 1 };
    if (!restored) return { ...begun, ...this.#lostBefore() };
    const { names, count, lost, lostCount } = restored;
    this.#restart = { reason: this.#ended, lost, lostCount, restored: { names, count } };
    this.#names = { names, nameCount: count };
    await variables.began(restored, { generation, intactSince: this.#intactSince });
    return { ...begun, ...this.#restart };
  }

  /** The generation of the next kernel, which no conversation has seen yet. */
  #nextGeneration(known: KnownKernel | undefined): number {
    const isNew = this.#generation > 0 && this.#generation >= (known?.generation ?? 0);
    return isNew ? this.#generation : (known?.generation ?? 0) + 1;
  }

  #lostBefore(): KernelRestart {
    const { names: lost, nameCount: lostCount } = this.#names;
    return { reason: this.#ended, lost, lostCount };
  }

  async #runIn(cell: Cell): Promise<CellStep> {
    const kernel = this.#kernel;
    if (!kernel) throw new Error('the kernel of the cell was not started');
    const { id, code, timeoutMs, modules, onOutput } = cell;
    try {
      const run = () => kernel.run({ id, code }, { timeoutMs, modules, onOutput });
      return await this.#inKernel(kernel, cell, run);
    } catch (error) {
      if (!(error instanceof KernelEnded)) throw error;
      // The kernel has ended since its last cell.
      this.#gone(reasonOf(error.end));
      return await this.#run(cell);
    }
  }

  /** Runs code until it ends or makes calls. */
  async #inKernel(
    kernel: Kernel,
    { id, signal, turnId }: Pick<Cell, 'id' | 'signal' | 'turnId'>,
    run: () => Promise<CellStop>,
  ): Promise<CellStep> {
    this.#isBusy = true;
    this.#seat?.use();
    const stopListening = onAbort(signal, () => kernel.interrupt());
    try {
      const stop = await run();
      if (stop.status === 'ended') return await this.#endOf(stop.end, { kernel, turnId });
      const { suspendMs } = this.#options;
      const suspendTimer = setTimeout(() => void this.stop('suspended'), suspendMs).unref();
      this.#waiting = { id, suspendTimer, turnId, over: new AbortController() };
      this.#usedAt = Date.now();
      return { generation: this.#generation, calls: stop.calls };
    } finally {
      stopListening();
      if (!this.#waiting) this.#rest();
    }
  }

  async #endOf(end: CellEnd, { kernel, turnId }: { kernel: Kernel; turnId: string }): Promise<RanCell> {
    const { variables } = this.#options;
    this.#names = { names: end.names, nameCount: end.nameCount };
    const ended = { end, turnId, generation: this.#generation, intactSince: this.#intactSince };
    const isStored = end.exit === 'ok' && !end.kernelEnd;
    const stored = isStored ? await variables.save(kernel, ended) : { notices: [] };
    if (!isStored) await variables.note(ended);
    const restart = this.#restart;
    this.#restart = undefined;
    const kernelEnd = end.kernelEnd ?? stored.kernelEnd;
    const cell = { ...end, notices: [...end.notices, ...stored.notices], ...(kernelEnd && { kernelEnd }) };
    const known = { exit: end.exit, cell, ...(restart && { restart }) };
    if (!kernelEnd) return { generation: this.#generation, end: known };
    const { snapshot } = variables;
    this.#gone(reasonOf(kernelEnd));
    this.#shownLost = snapshot?.otherCount;
    // The result reports the end of the kernel, so that the next cell relies on the next kernel.
    return { generation: this.#generation, end: { ...known, ...(snapshot && { stored: snapshot }) } };
  }

  /** Interrupts a waiting cell that will get no more replies. */
  async #abandon(): Promise<void> {
    const kernel = this.#kernel;
    const waiting = this.#waiting;
    if (!kernel || !waiting) return;
    this.#stopWaiting();
    await this.#endOf(await kernel.abandon(), { kernel, turnId: waiting.turnId });
    this.#rest();
  }

  #stopWaiting(): void {
    clearTimeout(this.#waiting?.suspendTimer);
    this.#waiting?.over.abort();
    this.#waiting = undefined;
  }

  #notStarted(reason: string): RanCell {
    this.#rest();
    return { generation: this.#generation, end: { exit: 'not_started', reason } };
  }

  /** Called when a kernel has ended. Calls that are approved later must not be executed for lost code. */
  #noteEnd(kernel: Kernel, end: KernelEnd): void {
    const isReportedByCell = this.#isBusy && !this.#waiting;
    if (this.#kernel !== kernel || isReportedByCell) return;
    this.#stopWaiting();
    this.#gone(reasonOf(end));
    this.#rest();
  }

  #gone(reason: RestartReason): void {
    // A kernel that no cell has seen is replaced without a new generation.
    if (!this.#startedEarly) this.#ended = reason;
    if (this.#kernel && !this.#startedEarly) this.#generation += 1;
    this.#startedEarly = undefined;
    this.#kernel = undefined;
    this.#seat?.leave();
    this.#seat = undefined;
  }

  /** Called when no cell runs: starts the idle timer of the kernel. */
  #rest(): void {
    clearTimeout(this.#idleTimer);
    this.#isBusy = false;
    this.#usedAt = Date.now();
    this.#seat?.rest();
    if (!this.#kernel) return;
    this.#idleTimer = setTimeout(() => void this.stop('idle'), this.#options.idleMs).unref();
  }
}

function reasonOf({ reason }: KernelEnd): RestartReason {
  // Only this class stops kernels, and it does not wait for their end then.
  return reason === 'stopped' ? 'died' : reason;
}
