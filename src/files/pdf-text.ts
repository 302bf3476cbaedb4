import { Worker } from 'node:worker_threads';
import { onAbort, waitOrAbort } from '../lib/abort.ts';
import { errorMessage } from '../lib/errors.ts';
import { KeyedSemaphore } from '../lib/keyed-semaphore.ts';

/** What the thread gets. */
export interface PdfTask {
  bytes: Uint8Array<ArrayBuffer>;
  maxPages: number;
  maxCharacters: number;
}

/** What the thread sends: the number of pages, the text of one page after the other, and how it ended. */
export type PdfMessage = { pages: number } | { text: string } | { problem: string } | 'end';

export interface PdfLimits {
  milliseconds: number;
  /** Of the thread: its objects, and the buffers into which it unpacks the file. */
  memoryBytes: number;
  pages: number;
  characters: number;
}

const LIMITS: PdfLimits = {
  milliseconds: 20_000,
  memoryBytes: 384 * 1024 * 1024,
  pages: 1_000,
  characters: 4_000_000,
};

/** Each takes a processor and the memory of the limits. */
const MAX_THREADS = 2;
const threads = new KeyedSemaphore(MAX_THREADS);

/** V8's limit for the objects of the thread, which stops a single large allocation, too. Buffers are not included. */
const MAX_OBJECTS_MB = 256;

const WATCH_MS = 50;

/**
 * The text of a PDF file, page by page, or why there is none. A text that is read in part says so at its end.
 * @throws only the reason of `signal`
 */
export async function readPdf(
  bytes: Uint8Array,
  signal: AbortSignal,
  limits: Partial<PdfLimits> = {},
): Promise<{ text: string } | { problem: string }> {
  const reading = threads.run('threads', async () => {
    signal.throwIfAborted();
    return new PdfReader(bytes, { ...LIMITS, ...limits }).run(signal);
  });
  return waitOrAbort(reading, signal);
}

class PdfReader {
  readonly #thread: Worker;
  readonly #limits: PdfLimits;
  readonly #ended = Promise.withResolvers<void>();
  readonly #texts: string[] = [];
  #pages = 0;
  #problem: string | undefined;
  #hasEnded = false;

  constructor(bytes: Uint8Array, limits: PdfLimits) {
    this.#limits = limits;
    const task: PdfTask = { bytes: new Uint8Array(bytes), maxPages: limits.pages, maxCharacters: limits.characters };
    this.#thread = new Worker(new URL('pdf-thread.ts', import.meta.url), {
      workerData: task,
      transferList: [task.bytes.buffer],
      env: {},
      execArgv: [],
      stdout: true,
      stderr: true,
      resourceLimits: { maxOldGenerationSizeMb: MAX_OBJECTS_MB, maxYoungGenerationSizeMb: 32 },
    });
    // The library writes warnings about what it finds in files.
    this.#thread.stdout.resume();
    this.#thread.stderr.resume();
    this.#thread.on('message', (message: PdfMessage) => this.#onMessage(message));
    this.#thread.on('error', (error) => this.#end(reasonOf(error)));
    this.#thread.on('exit', () => this.#end('its reader ended unexpectedly'));
  }

  async run(signal: AbortSignal): Promise<{ text: string } | { problem: string }> {
    const { milliseconds } = this.#limits;
    const timer = setTimeout(() => this.#end(`reading it takes longer than ${milliseconds / 1000} s`), milliseconds);
    const watch = setInterval(() => void this.#checkMemory(), WATCH_MS);
    const stopListening = onAbort(signal, () => this.#end('it was cancelled'));
    try {
      await this.#ended.promise;
    } finally {
      clearTimeout(timer);
      clearInterval(watch);
      stopListening();
      await this.#thread.terminate();
    }
    signal.throwIfAborted();
    return this.#result();
  }

  #onMessage(message: PdfMessage): void {
    if (message === 'end') this.#end();
    else if ('pages' in message) this.#pages = message.pages;
    else if ('text' in message) this.#texts.push(message.text);
    else this.#end(message.problem);
  }

  /** Only the first call counts. */
  #end(problem?: string): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#problem = problem;
    this.#ended.resolve();
  }

  async #checkMemory(): Promise<void> {
    try {
      const { total_heap_size: objects, external_memory: buffers } = await this.#thread.getHeapStatistics();
      if (objects + buffers > this.#limits.memoryBytes) this.#end(TOO_MUCH_MEMORY);
    } catch {
      // The thread has not started yet, or has ended.
    }
  }

  #result(): { text: string } | { problem: string } {
    if (this.#texts.every((text) => text.trim() === '')) {
      return { problem: this.#problem ?? `it has no text on ${this.#pages} pages: they may be scanned images` };
    }
    const pages = this.#texts.map((text, i) => `[page ${i + 1}]\n${text.trim()}`);
    if (this.#problem !== undefined)
      pages.push(`[the rest of the ${this.#pages} pages was not read: ${this.#problem}]`);
    return { text: pages.join('\n\n') };
  }
}

const TOO_MUCH_MEMORY = 'reading it takes too much memory';

function reasonOf(error: unknown): string {
  const isOutOfMemory = error instanceof Error && 'code' in error && error.code === 'ERR_WORKER_OUT_OF_MEMORY';
  return isOutOfMemory ? TOO_MUCH_MEMORY : `its reader failed: ${errorMessage(error).slice(0, 200)}`;
}
