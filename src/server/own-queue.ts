import { randomUUID } from 'node:crypto';
import { GracefulShutdownPeriodExpiredError, Worker, type WorkerOptions } from '@temporalio/worker';
import type { Logger } from 'pino';

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

  /** The name of the queue, once a worker polls it. A process that stops starts none: it continues no further call. */
  async open(): Promise<string> {
    if (!this.#isStopped) await (this.#worker ??= this.#start());
    return this.#name;
  }

  /** Waits until the running calls have ended. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    const worker = await this.#worker;
    if (worker?.getState() === 'RUNNING') worker.shutdown();
    await this.#finished;
  }

  async #start(): Promise<Worker> {
    const { log, options } = this.#options;
    const worker = await Worker.create({ ...options(), taskQueue: this.#name });
    this.#finished = worker.run().catch((error: unknown) => {
      const message = 'the worker for calls that wait for the user has stopped';
      if (error instanceof GracefulShutdownPeriodExpiredError)
        log.warn({ err: error }, `${message} with work in progress`);
      else log.error({ err: error }, message);
    });
    return worker;
  }
}
