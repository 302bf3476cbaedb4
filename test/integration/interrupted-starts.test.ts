import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, inject, onTestFinished, test, vi } from 'vitest';
import { listOwnProcesses } from '../support/own-processes.ts';
import { TestRedis } from '../support/redis.ts';
import { ServerProcess } from '../support/server-process.ts';

// On a busy machine a start takes longer than a test.
vi.setConfig({ testTimeout: 120_000 });

let dataDir: string;
beforeAll(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), 'everturn-signals-'));
});
afterAll(() => rm(dataDir, { recursive: true, force: true }));

/** The programs that run on the data folder: those of Temporal. */
async function programs(): Promise<string[]> {
  return (await listOwnProcesses()).flatMap(({ commandLine }) => (commandLine.includes(dataDir) ? [commandLine] : []));
}

async function isListening(server: ServerProcess): Promise<boolean> {
  return server.api.send('GET', '/readyz').then(
    () => true,
    () => false,
  );
}

/** Starts the server and stops it as soon as `moment` has come, before it is ready. */
async function interrupt(server: ServerProcess, moment: () => Promise<boolean>): Promise<number | null> {
  const started = server.start();
  await Promise.race([vi.waitUntil(moment, { timeout: 60_000, interval: 20 }), started]);
  expect(server.isReady).toBe(false);
  const [code] = await Promise.all([server.stop(), expect(started).rejects.toThrow('it exited with')]);
  return code;
}

test('SIGTERM during the start, while Temporal starts, leaves no process behind', async () => {
  const server = await ServerProcess.prepare(dataDir, {});
  expect(await interrupt(server, async () => (await programs()).length > 0)).toBe(0);
  expect(await programs()).toEqual([]);
});

test('SIGTERM during the start of an API or a worker ends it', async () => {
  const redis = await TestRedis.start();
  onTestFinished(() => redis.down());
  const env = {
    DATABASE_URL: `sqlite:${path.join(dataDir, 'catalog.db')}`,
    REDIS_URL: redis.url,
    TEMPORAL_ADDRESS: inject('temporalAddress'),
    TEMPORAL_NAMESPACE: inject('temporalNamespace'),
    OPENAI_API_KEY: 'x',
  };
  for (const role of ['api', 'worker'] as const) {
    const server = await ServerProcess.prepare(dataDir, env, role);
    expect(await interrupt(server, () => isListening(server)), role).toBe(0);
  }
});

test('SIGTERM during the start after a kill -9 also ends the Temporal that was left running', async () => {
  const server = await ServerProcess.prepare(dataDir, {});
  await server.start();
  await server.kill();
  expect(await programs()).toHaveLength(1);
  expect(await interrupt(server, () => isListening(server))).toBe(0);
  expect(await programs()).toEqual([]);
});
