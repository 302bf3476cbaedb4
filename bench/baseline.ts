import { fileURLToPath } from 'node:url';
import type { Client } from '@temporalio/client';
import { bundleWorkflowCode, DefaultLogger, type NativeConnection, Worker } from '@temporalio/worker';
import { newId } from '../src/engine/new-id.ts';

/** The baseline: workflows without Everturn, on the same server and with Everturn's worker settings where they matter. */
export class Baseline {
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

  static async start(client: Client, connection: NativeConnection, namespace: string): Promise<Baseline> {
    const taskQueue = newId('req');
    const workflowBundle = await bundleWorkflowCode({
      workflowsPath: fileURLToPath(new URL('baseline-workflows.ts', import.meta.url)),
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
    return new Baseline(client, worker, taskQueue);
  }

  /** Runs one workflow that executes `activities` activities, one after the other; they do nothing. */
  async run(activities: number): Promise<void> {
    await this.#client.workflow.execute('baseline', {
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
