import { parentPort, workerData } from 'node:worker_threads';
import { errorMessage, NamedError } from '../../lib/errors.ts';
import type { ReaderMessage, ReaderTask } from './extract-text.ts';

/** A file cannot be read, or only in part. The message contains the reason. */
export class Unreadable extends NamedError {}

/**
 * Runs the thread that reads one file, which may be hostile: the thread has no environment and bounded memory, and is
 * terminated if it takes too long. An error thrown by `read` is reported as a damaged file.
 */
export function runReader(read: (task: ReaderTask, out: TextSender) => Promise<void>): void {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- set by `extractText`
  const task = workerData as ReaderTask;
  read(task, new TextSender(task.maxCharacters)).then(
    () => send('end'),
    (error: unknown) => {
      const reason = errorMessage(error).slice(0, 200);
      send({ problem: error instanceof Unreadable ? reason : `it is damaged: ${reason}` });
    },
  );
}

/** Sends the parts of a text, as many characters as the file may have. */
class TextSender {
  #remaining: number;

  constructor(maxCharacters: number) {
    this.#remaining = maxCharacters;
  }

  /** `whole`: for example "3 pages", for a note about a missing rest. `blank`: the problem if no part has a text. */
  begin(whole: string, blank: string): void {
    send({ whole, blank });
  }

  /** @throws Unreadable after the last character that the file may have */
  part(text: string, title?: string): void {
    const clean = text.toWellFormed().replaceAll('\0', '');
    send({ text: clean.slice(0, this.#remaining), ...(title !== undefined && { title }) });
    this.#remaining -= clean.length;
    if (this.#remaining < 0) throw tooLong();
  }
}

export function tooLong(): Unreadable {
  return new Unreadable('the file is too long');
}

function send(message: ReaderMessage): void {
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- the port of a thread has none
  parentPort?.postMessage(message);
}
