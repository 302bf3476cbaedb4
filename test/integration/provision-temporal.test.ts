import path from 'node:path';
import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { Client, Connection } from '@temporalio/client';
import { pino } from 'pino';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { freePort } from '../../src/lib/processes.ts';
import { killUsersAtEnd } from '../support/reaper.ts';
import { cliSettings } from '../support/temporal-cli.ts';
import { ProvisionError } from '../../src/lib/errors.ts';
import { provisionTemporal, type ProvisionedTemporal } from '../../src/temporal-server/provision.ts';

vi.setConfig({ testTimeout: 60_000 });

const namespace = 'everturn';
let dataDir: string;
let embedded: ProvisionedTemporal;

// The program may have to be installed.
beforeAll(async () => {
  dataDir = await realpath(await mkdtemp(path.join(tmpdir(), 'everturn-provision-')));
  killUsersAtEnd(dataDir);
  embedded = await provisionTemporal({
    ...cliSettings(),
    dataDir,
    external: undefined,
    namespace,
    log: pino({ level: 'warn' }),
  });
}, 600_000);

afterAll(async () => {
  await embedded.stop();
  await rm(dataDir, { recursive: true, force: true });
});

function provisionForeign(address: string, namespace: string): Promise<ProvisionedTemporal> {
  return provisionTemporal({
    ...cliSettings(),
    dataDir: path.join(dataDir, 'unused'),
    external: { connectionOptions: { address } },
    namespace,
    log: pino({ level: 'silent' }),
  });
}

test('the embedded namespace can be used at once and keeps histories for ten years', async () => {
  expect(embedded).toMatchObject({ embedded: true, namespace });
  const connection = await Connection.connect(embedded.connectionOptions);
  const client = new Client({ connection, namespace });
  await client.workflow.start('nothing', { workflowId: 'first', taskQueue: 'nobody', args: [] });
  const { config } = await client.workflowService.describeNamespace({ namespace });
  expect(Number(config?.workflowExecutionRetentionTtl?.seconds)).toBe(3650 * 86_400);
  await connection.close();
});

test('an external server is used as it is, and left running', async () => {
  const { address = '' } = embedded.connectionOptions;
  const foreign = await provisionForeign(address, namespace);
  expect(foreign).toMatchObject({ embedded: false, namespace, connectionOptions: { address } });
  await foreign.stop();
  const connection = await Connection.connect({ address });
  await connection.workflowService.describeNamespace({ namespace });
  await connection.close();
});

test('an external server without the namespace is rejected, with the command that creates it', async () => {
  const { address = '' } = embedded.connectionOptions;
  const error = await provisionForeign(address, 'elsewhere').catch((error: unknown) => error);
  expect(error).toBeInstanceOf(ProvisionError);
  expect(String(error)).toContain(`TEMPORAL_ADDRESS ${address} has no namespace elsewhere`);
  expect(String(error)).toContain('temporal operator namespace create');
});

test('an external server that does not respond is given up within seconds, and the variable is named', async () => {
  const address = `127.0.0.1:${await freePort()}`;
  const startedAt = performance.now();
  const error = await provisionForeign(address, namespace).catch((error: unknown) => error);
  expect(error).toBeInstanceOf(ProvisionError);
  expect(String(error)).toContain(`no Temporal server answers at TEMPORAL_ADDRESS ${address}`);
  expect(performance.now() - startedAt).toBeLessThan(20_000);
});
