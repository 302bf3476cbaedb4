import { randomUUID } from 'node:crypto';
import { GracefulShutdownPeriodExpiredError, TransportError, Worker, type WorkerOptions } from '@temporalio/worker';
import type { Logger } from 'pino';
import { EngineError } from '../engine/errors.ts';

interface OwnQueueOptions {
  /** The task queue that all workers share. */
  sharedQueue: string;
  log: Logger;
  /** Called when the worker starts. */
  options: () => Omit<WorkerOptions, 'taskQueue'>;
}

/**
 * A task queue that only this process polls, for calls which no other process can continue. Its worker starts with the
 * first of them, since most processes have none.
 */
export class OwnQueue {
  readonly #name: string;
  readonly #options: OwnQueueOptions;
  #worker: Promise<Worker> | undefined;
  #finished: Promise<void> = Promise.resolve();
  #isStopped = false;

  constructor(options: OwnQueueOptions) {
    this.#options = options;
    this.#name = `${options.sharedQueue}/${randomUUID()}`;
  }

  /**
   * The name of the queue, once a worker polls it. A process that stops starts none: it continues no further call. After
   * a failure the next call starts one.
   * @throws EngineError `unavailable` if Temporal is
   */
  async open(): Promise<string> {
    if (this.#isStopped) return this.#name;
    const worker = (this.#worker ??= this.#start());
    try {
      await worker;
    } catch (error) {
      this.#forget(worker);
      if (!(error instanceof TransportError)) throw error;
      throw new EngineError('unavailable', 'Temporal is unavailable for calls that ask the user', { cause: error });
    }
    return this.#name;
  }

  /** Waits until the running calls have ended. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    const worker = await this.#worker?.catch(() => undefined);
    if (worker?.getState() === 'RUNNING') worker.shutdown();
    await this.#finished;
  }

  #forget(worker: Promise<Worker>): void {
    if (this.#worker === worker) this.#worker = undefined;
  }

  async #start(): Promise<Worker> {
    const { log, options } = this.#options;
    const worker = await Worker.create({ ...options(), taskQueue: this.#name });
    const run = worker.run().catch((error: unknown) => {
      const message = 'the worker for calls that wait for the user has stopped';
      if (error instanceof GracefulShutdownPeriodExpiredError)
        log.warn({ err: error }, `${message} with work in progress`);
      else log.error({ err: error }, message);
    });
    // The next call replaces a worker that has failed.
    this.#finished = run.then(() => {
      this.#worker = undefined;
    });
    return worker;
  }
}
