import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Client, Connection } from '@temporalio/client';
import { historyToJSON } from './sdk-internals.ts';
import type { ReplayResult, ReplayWorkerOptions } from '@temporalio/worker';
import { expect } from 'vitest';
import type { Config } from '../../src/config.ts';
import { Cipher } from '../../src/encryption/cipher.ts';
import { workerConverterFor } from '../../src/temporal/data-converter.ts';
import { isNotFound } from '../../src/temporal/errors.ts';
import { workflowBundle } from '../../src/temporal/workflow-bundle.ts';
import { LeanWorker } from '../../src/temporal/workflow-threads.ts';

/** Checks that every history of the test replays on the workflow code: the same commands in the same order. */
export async function expectReplays(config: Config): Promise<void> {
  const { temporal, encryptionKeys } = config;
  const connection = await Connection.connect(temporal.external?.connectionOptions);
  try {
    const client = new Client({ connection, namespace: temporal.namespace });
    const histories = historiesOf(client, `TaskQueue = '${temporal.taskQueue}'`);
    const replayer = await replayerFor(config);
    for await (const { workflowId, runId, history } of begun(histories)) {
      const { error } = await replayer.replay(workflowId, history);
      if (!error) continue;
      const file = path.join(await mkdtemp(path.join(tmpdir(), 'everturn-history-')), 'history.json');
      await writeFile(file, historyToJSON(await client.workflow.getHandle(workflowId, runId).fetchHistory()));
      const keys = encryptionKeys.map(({ id, key }) => `${id}:${key.toString('base64')}`).join();
      const where = `its history is in ${file}${keys && `, under EVERTURN_ENCRYPTION_KEYS=${keys}`}`;
      expect.fail(`${workflowId} does not replay; ${where}: ${error.message}`);
    }
  } finally {
    await connection.close();
  }
}

const replayers = new Map<string, Promise<Replayer>>();

/** Starting a replay worker takes longer than a typical test's replay: there is one per process and its settings. */
function replayerFor(config: Config): Promise<Replayer> {
  const { encryptionKeys, acceptsUnencrypted } = config;
  const settings = JSON.stringify([
    encryptionKeys.map(({ id, key }) => [id, key.toString('base64')]),
    acceptsUnencrypted,
  ]);
  const replayer = replayers.get(settings) ?? startReplayer(config);
  replayers.set(settings, replayer);
  return replayer;
}

async function startReplayer(config: Config): Promise<Replayer> {
  const { cacheDir, encryptionKeys } = config;
  const dataConverter = workerConverterFor(new Cipher(encryptionKeys), config);
  const bundle = await workflowBundle(cacheDir, { encodesFailures: encryptionKeys.length > 0 });
  return new Replayer({ workflowBundle: bundle, ...(dataConverter && { dataConverter }) });
}

interface HistoryToReplay {
  workflowId: string;
  history: unknown;
}

/** A replay worker, which ends with the process. It replays one history after the other. */
export class Replayer {
  readonly #histories: WritableStreamDefaultWriter<HistoryToReplay>;
  readonly #results: AsyncIterableIterator<ReplayResult>;

  constructor(options: ReplayWorkerOptions) {
    const { readable, writable } = new TransformStream<HistoryToReplay, HistoryToReplay>();
    this.#histories = writable.getWriter();
    // Not the SDK's own worker: it replays in the main thread and records the stack of each promise.
    this.#results = LeanWorker.runReplayHistories(options, readable);
  }

  /** The result has an error if the history does not replay. */
  async replay(workflowId: string, history: unknown): Promise<ReplayResult> {
    // Each history has one result, in the same order, also when several are replayed at the same time.
    void this.#histories.write({ workflowId, history });
    const { done, value } = await this.#results.next();
    if (done) throw new Error('the replay worker has ended');
    return value;
  }
}

async function* historiesOf({ workflow }: Client, query: string) {
  for await (const { workflowId, runId } of workflow.list({ query })) {
    try {
      yield { workflowId, runId, history: await workflow.getHandle(workflowId, runId).fetchHistory() };
    } catch (error) {
      // It was deleted after it was listed.
      if (!isNotFound(error)) throw error;
    }
  }
}

/** The histories with a workflow task. The SDK would wait for ever for the replay of a run that has just continued as new. */
async function* begun<H extends { history: unknown }>(histories: AsyncIterable<H>): AsyncGenerator<H> {
  for await (const one of histories) {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the client gives decoded histories
    const { events } = one.history as { events?: { workflowTaskCompletedEventAttributes?: unknown }[] };
    if (events?.some((event) => event.workflowTaskCompletedEventAttributes)) yield one;
  }
}
