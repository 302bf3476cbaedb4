import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Client, Connection } from '@temporalio/client';
import { historyToJSON } from '@temporalio/common/lib/proto-utils.js';
import { Worker } from '@temporalio/worker';
import { expect } from 'vitest';
import type { Config } from '../../src/config.ts';
import { Cipher } from '../../src/encryption/cipher.ts';
import { workerConverterFor } from '../../src/temporal/data-converter.ts';
import { isNotFound } from '../../src/temporal/errors.ts';
import { workflowBundle } from '../../src/temporal/workflow-bundle.ts';

/** Checks that every history of the test replays on the workflow code: the same commands in the same order. */
export async function expectReplays(config: Config): Promise<void> {
  const { temporal, cacheDir, encryptionKeys } = config;
  const connection = await Connection.connect(temporal.external?.connectionOptions);
  try {
    const client = new Client({ connection, namespace: temporal.namespace });
    const histories = historiesOf(client, `TaskQueue = '${temporal.taskQueue}'`);
    const dataConverter = workerConverterFor(new Cipher(encryptionKeys), config);
    const bundle = await workflowBundle(cacheDir, { encodesFailures: encryptionKeys.length > 0 });
    const options = { workflowBundle: bundle, ...(dataConverter && { dataConverter }) };
    for await (const { workflowId, runId, error } of Worker.runReplayHistories(options, begun(histories))) {
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
