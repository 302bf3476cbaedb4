import { fileURLToPath } from 'node:url';
import type { Client } from '@temporalio/client';
import { bundleWorkflowCode, DefaultLogger, type NativeConnection, Worker } from '@temporalio/worker';
import { newId } from '../src/engine/new-id.ts';

/** Bare workflows on the same server, with the same worker settings as Everturn's where they matter. */
export class Floor {
  readonly #client: Client;
  readonly #worker: Worker;
  readonly #taskQueue: string;
  readonly #running: Promise<void>;

  private constructor(client: Client, worker: Worker, taskQueue: string) {
    this.#client = client;
    this.#worker = worker;
    this.#taskQueue = taskQueue;
    this.#running = worker.run();
  }

  static async start(client: Client, connection: NativeConnection, namespace: string): Promise<Floor> {
    const taskQueue = newId('req');
    const workflowBundle = await bundleWorkflowCode({
      workflowsPath: fileURLToPath(new URL('floor-workflows.ts', import.meta.url)),
      logger: new DefaultLogger('ERROR'),
    });
    const worker = await Worker.create({
      connection,
      namespace,
      taskQueue,
      workflowBundle,
      activities: { nothing: () => Promise.resolve() },
      maxConcurrentActivityTaskExecutions: 1_000,
      maxConcurrentWorkflowTaskExecutions: 100,
      maxEagerActivityReservationsPerWorkflowTask: 50,
    });
    return new Floor(client, worker, taskQueue);
  }

  /** Runs one workflow of `activities` no-ops. */
  async run(activities: number): Promise<void> {
    await this.#client.workflow.execute('floor', {
      workflowId: newId('req'),
      taskQueue: this.#taskQueue,
      args: [activities],
    });
  }

  async stop(): Promise<void> {
    this.#worker.shutdown();
    await this.#running;
  }
}
