import { Worker } from 'node:worker_threads';
import { onAbort, waitOrAbort } from '../../lib/abort.ts';
import { errorMessage } from '../../lib/errors.ts';
import { KeyedSemaphore } from '../../lib/keyed-semaphore.ts';
import type { ExtractedKind } from './file-kind.ts';

/** The input of the thread: the whole buffer, and limits as in `ReaderLimits`. */
export interface ReaderTask {
  bytes: Uint8Array<ArrayBuffer>;
  maxParts: number;
  maxCharacters: number;
  maxUnpackedBytes: number;
}

/** The messages of the thread: what it reads (see `TextSender`), the texts of the parts in order, and the end. */
export type ReaderMessage =
  | { whole: string; blank: string }
  | { text: string; title?: string }
  | { problem: string }
  | 'end';

interface ReaderLimits {
  milliseconds: number;
  /** The memory of the thread: its objects, and the buffers into which it unpacks the file. */
  memoryBytes: number;
  /** The pages of a PDF file, the entries of an archive. */
  parts: number;
  characters: number;
  /** The sum over all entries of an archive. */
  unpackedBytes: number;
}

const LIMITS: ReaderLimits = {
  milliseconds: 20_000,
  memoryBytes: 384 * 1024 * 1024,
  parts: 1_000,
  characters: 4_000_000,
  unpackedBytes: 64 * 1024 * 1024,
};

/** The entry points of the threads, by what they read. */
const THREADS: Record<ExtractedKind, URL> = {
  pdf: new URL('pdf-thread.ts', import.meta.url),
  docx: new URL('docx-thread.ts', import.meta.url),
  zip: new URL('zip-thread.ts', import.meta.url),
};

/** Each thread takes a processor and the memory of the limits. */
const MAX_THREADS = 2;
const threads = new KeyedSemaphore(MAX_THREADS);

/** V8's limit for the objects of the thread, which stops a single large allocation, too. Buffers are not included. */
const MAX_OBJECTS_MB = 256;

const WATCH_MS = 50;

/**
 * The text of a file, part by part, or the reason why there is none. A text that was read in part ends with a note.
 * @throws only the reason of `signal`
 */
export async function extractText(
  kind: ExtractedKind,
  bytes: Uint8Array,
  signal: AbortSignal,
  limits: Partial<ReaderLimits> = {},
): Promise<{ text: string } | { problem: string }> {
  const reading = threads.run('threads', async () => {
    signal.throwIfAborted();
    return new FileReader(kind, bytes, { ...LIMITS, ...limits }).run(signal);
  });
  return waitOrAbort(reading, signal);
}

class FileReader {
  readonly #thread: Worker;
  readonly #limits: ReaderLimits;
  /** Resolves with the problem that has ended the thread, if any. Only the first call of `resolve` counts. */
  readonly #ended = Promise.withResolvers<string | undefined>();
  readonly #parts: { text: string; title?: string }[] = [];
  #whole = 'file';
  #blank = 'it has no text';

  constructor(kind: ExtractedKind, bytes: Uint8Array, limits: ReaderLimits) {
    this.#limits = limits;
    const task: ReaderTask = {
      bytes: new Uint8Array(bytes),
      maxParts: limits.parts,
      maxCharacters: limits.characters,
      maxUnpackedBytes: limits.unpackedBytes,
    };
    this.#thread = new Worker(THREADS[kind], {
      workerData: task,
      transferList: [task.bytes.buffer],
      env: {},
      execArgv: [],
      stdout: true,
      stderr: true,
      resourceLimits: { maxOldGenerationSizeMb: MAX_OBJECTS_MB, maxYoungGenerationSizeMb: 32 },
    });
    const { resolve } = this.#ended;
    // Discards the warnings of the libraries about the contents of files.
    this.#thread.stdout.resume();
    this.#thread.stderr.resume();
    this.#thread.on('message', (message: ReaderMessage) => this.#onMessage(message));
    this.#thread.on('error', (error) => resolve(reasonOf(error)));
    this.#thread.on('exit', () => resolve('its reader ended unexpectedly'));
  }

  async run(signal: AbortSignal): Promise<{ text: string } | { problem: string }> {
    const { milliseconds } = this.#limits;
    const { promise, resolve } = this.#ended;
    const timer = setTimeout(() => resolve(`reading it takes longer than ${milliseconds / 1000} s`), milliseconds);
    const watch = setInterval(() => void this.#checkMemory(), WATCH_MS);
    const stopListening = onAbort(signal, () => resolve('it was cancelled'));
    try {
      await promise;
    } finally {
      clearTimeout(timer);
      clearInterval(watch);
      stopListening();
      await this.#thread.terminate();
    }
    signal.throwIfAborted();
    return this.#result(await promise);
  }

  #onMessage(message: ReaderMessage): void {
    if (message === 'end') this.#ended.resolve(undefined);
    else if ('text' in message) this.#parts.push(message);
    else if ('problem' in message) this.#ended.resolve(message.problem);
    else {
      this.#whole = message.whole;
      this.#blank = message.blank;
    }
  }

  async #checkMemory(): Promise<void> {
    try {
      const { total_heap_size: objects, external_memory: buffers } = await this.#thread.getHeapStatistics();
      if (objects + buffers > this.#limits.memoryBytes) this.#ended.resolve(TOO_MUCH_MEMORY);
    } catch {
      // The thread has not started yet, or has ended.
    }
  }

  #result(problem: string | undefined): { text: string } | { problem: string } {
    if (this.#parts.every(({ text }) => text.trim() === '')) return { problem: problem ?? this.#blank };
    const parts = this.#parts.map(({ text, title }) => `${title === undefined ? '' : `[${title}]\n`}${text.trim()}`);
    if (problem !== undefined) parts.push(`[the rest of the ${this.#whole} was not read: ${problem}]`);
    return { text: parts.join('\n\n') };
  }
}

const TOO_MUCH_MEMORY = 'reading it takes too much memory';

function reasonOf(error: unknown): string {
  const isOutOfMemory = error instanceof Error && 'code' in error && error.code === 'ERR_WORKER_OUT_OF_MEMORY';
  return isOutOfMemory ? TOO_MUCH_MEMORY : `its reader failed: ${errorMessage(error).slice(0, 200)}`;
}
