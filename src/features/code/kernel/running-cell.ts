import { randomBytes } from 'node:crypto';
import { StringDecoder } from 'node:string_decoder';
import type { z } from 'zod';
import type { OutputPart } from '../../../core/output-parts.ts';
import { CellOutput } from './cell-output.ts';
import type { displayType, KernelFrame, KeptVariables } from './frames.ts';
import { CellCalls, type KernelCall } from './kernel-calls.ts';
import { MarkedText } from './marked-text.ts';

/** Why a kernel has ended. */
export interface KernelEnd {
  reason: 'died' | 'out_of_memory' | 'unresponsive' | 'stopped';
  /** How the process ended, or the reason in the call of `stop`. */
  detail: string;
}

/** A display of a cell that becomes a file. */
export interface Display {
  mediaType: z.infer<typeof displayType>;
  data: Buffer;
}

export interface CellEnd {
  /** `denied`: a call was denied, which the code has not caught. */
  exit: 'ok' | 'error' | 'denied' | 'timeout' | 'interrupted' | 'died';
  /** If the kernel ended with the cell. */
  kernelEnd?: KernelEnd;
  /** The exception that ended the code. */
  error?: { name: string; message: string };
  /** The printed and displayed texts and the traceback, in order of arrival; adjacent parts have different channels. */
  parts: OutputPart[];
  /** The bytes (UTF-8) of the output, including those that were discarded because of the limit `outputBytes`. */
  outputBytes: number;
  discardedBytes: number;
  /** At most 20 of 8 MiB. */
  displays: Display[];
  /** The numbers of its tool calls and commands. */
  toolCalls: number;
  commands: number;
  /** New and changed variables, at most 100. */
  defined: string[];
  /** The names of all variables of the user, at most 200, and their number; before the cell if the kernel has ended. */
  names: string[];
  nameCount: number;
  /** The result of a task with the variables; absent for a cell. */
  variables?: KeptVariables;
  /** Notices for readers, without `[everturn] `. They are passed to `onOutput`, and are not in `parts`. */
  notices: string[];
  startedAt: Date;
  /** Includes the time in which it waited for replies. */
  durationMs: number;
}

/** A cell has ended, or waits for the replies to its calls. */
export type CellStop = { status: 'ended'; end: CellEnd } | { status: 'calls'; calls: KernelCall[] };

export interface CellRunOptions {
  /** Milliseconds until the code is interrupted, without the time in which it waits for replies. */
  timeoutMs: number;
  /** The hash of the modules in the folder of the tools, by which a kernel detects their changes. */
  modules?: string;
  /** Gets the output as it arrives, at most 0.1 s later. */
  onOutput: (part: OutputPart) => void;
}

interface RunningCellOptions extends Pick<CellRunOptions, 'timeoutMs' | 'onOutput'> {
  /** No beginnings of these values are shown where output is cut. */
  hidden: { readonly values: readonly string[] };
  /** Called when output is cut. */
  onCut: () => void;
}

type EndFrame = Extract<KernelFrame, { type: 'end' }>;
type DisplayFrame = Extract<KernelFrame, { type: 'display' }>;
export type InterruptCause = 'timeout' | 'interrupted';
export type Names = Pick<CellEnd, 'names' | 'nameCount'>;

const MAX_DISPLAYS = 20;
const MAX_DISPLAY_BYTES = 8 * 1024 * 1024;
/** How long to wait after the end of the code for output outside of frames, whose end user code can prevent. */
const MARK_MS = 1000;

/** A cell from the start of its code to its last output. */
export class RunningCell {
  readonly id: string;
  /** The mark follows the last output that is not in frames. */
  readonly mark = `\0${randomBytes(16).toString('hex')}\0`;
  /** Identifies the cell in its calls. */
  readonly token = randomBytes(16).toString('hex');
  readonly calls = new CellCalls();
  /** It is flushed when the code waits, and cut when later output was cut off. */
  readonly output: CellOutput;
  readonly #end = Promise.withResolvers<CellEnd>();
  readonly ended = this.#end.promise;
  readonly #startedAt = new Date();
  readonly #start = performance.now();
  readonly #onOutput: (part: OutputPart) => void;
  readonly #decoder = new StringDecoder('utf8');
  readonly #marked = new MarkedText(this.mark);
  readonly #displays: Display[] = [];
  readonly #before: Names;
  #cause: InterruptCause | undefined;
  #hasStarted = false;
  #hasMark = false;
  #endFrame: EndFrame | undefined;
  #markTimer: NodeJS.Timeout | undefined;
  #timeoutMs: number;

  /** @param before the variables before the cell */
  constructor(id: string, outputBytes: number, before: Names, { timeoutMs, onOutput, ...cut }: RunningCellOptions) {
    this.id = id;
    this.#timeoutMs = timeoutMs;
    this.#before = before;
    this.#onOutput = onOutput;
    this.output = new CellOutput(outputBytes, onOutput, cut);
  }

  /** Records why the code is interrupted. The first cause counts. */
  interruptFor(cause: InterruptCause): void {
    if (!this.hasCodeEnded) this.#cause ??= cause;
  }

  /** Takes a frame of this cell. */
  take(frame: Exclude<Extract<KernelFrame, { id: string }>, { type: 'calls' }>): void {
    if (this.#endFrame) return;
    if (frame.type === 'started') this.#hasStarted = true;
    else if (frame.type === 'output') this.output.add(frame.channel, frame.text);
    else if (frame.type === 'cut') this.output.cut();
    else if (frame.type === 'display') this.#display(frame);
    else this.#takeEnd(frame);
  }

  /** Takes output that is not in frames. */
  takeBytes(chunk: Buffer): void {
    const { text, isMarked } = this.#marked.push(this.#decoder.write(chunk));
    this.output.add('stdout', text);
    if (!isMarked) return;
    this.#hasMark = true;
    if (this.#endFrame) this.#finish(this.#endFrame);
  }

  /** Whether its code runs, so that it can be interrupted. */
  get runsCode(): boolean {
    return this.#hasStarted && !this.#endFrame;
  }

  get hasCodeEnded(): boolean {
    return this.#endFrame !== undefined;
  }

  get isInterrupted(): boolean {
    return this.#cause !== undefined;
  }

  /** Ends the cell because its kernel has ended. */
  endWith(kernelEnd: KernelEnd): void {
    this.output.add('stdout', this.#marked.rest());
    this.output.cut();
    this.#resolveWith({ exit: this.#cause ?? 'died', kernelEnd, defined: [], notices: [], ...this.#before });
  }

  #display({ mediaType, data }: DisplayFrame): void {
    const isTooMuch = this.#displays.length >= MAX_DISPLAYS || (data.length * 3) / 4 > MAX_DISPLAY_BYTES + 2;
    // The kernel observes the limits and reports when they are reached, so a larger display is forged.
    if (!isTooMuch) this.#displays.push({ mediaType, data: Buffer.from(data, 'base64') });
  }

  #takeEnd(frame: EndFrame): void {
    this.#endFrame = frame;
    if (this.#hasMark || !frame.isMarked) this.#finish(frame);
    else this.#markTimer = setTimeout(() => this.#finish(frame), MARK_MS);
  }

  #finish({ error, isDenied, discardedBytes, defined, names, nameCount, notices, variables }: EndFrame): void {
    this.output.discard(discardedBytes);
    const exit = this.#cause ?? (error ? (isDenied ? 'denied' : 'error') : 'ok');
    const details = { ...(error && { error }), ...(variables && { variables }) };
    this.#resolveWith({ exit, defined, names, nameCount, notices, ...details });
  }

  #resolveWith(
    end: Pick<CellEnd, 'exit' | 'kernelEnd' | 'error' | 'defined' | 'names' | 'nameCount' | 'notices' | 'variables'>,
  ): void {
    clearTimeout(this.#markTimer);
    const output = this.output.end();
    const notices = [...end.notices, ...this.#ownNotices(output.discardedBytes)];
    for (const notice of notices) this.#onOutput({ channel: 'notice', text: `[everturn] ${notice}\n` });
    const durationMs = Math.round(performance.now() - this.#start);
    const { toolCalls, commands } = this.calls;
    const made = { displays: this.#displays, toolCalls, commands };
    this.#end.resolve({ ...end, ...output, ...made, notices, startedAt: this.#startedAt, durationMs });
  }

  #ownNotices(discardedBytes: number): string[] {
    return [
      ...(discardedBytes > 0 ? [`output limit reached: ${discardedBytes} bytes are discarded`] : []),
      ...(this.#cause === 'timeout' ? [`time limit of ${this.#timeoutMs / 1000} s reached`] : []),
    ];
  }
}
