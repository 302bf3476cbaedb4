import { pino } from 'pino';
import { expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { createOperationsApp } from '../api/app.ts';
import { listenHttp } from './http-server.ts';
import { Readiness } from './readiness.ts';
import type { Services } from './services.ts';
import { Metrics } from '../telemetry/metrics.ts';

test('the stores are checked once a second, however often readiness is requested', async () => {
  let checks = 0;
  const check = () => Promise.resolve(checks++);
  const client = { options: {}, connection: { withDeadline: () => Promise.resolve() } };
  const parts = { catalog: { check }, blobs: { check: () => Promise.resolve() }, client };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the parts that are checked
  const services = {
    ...parts,
    redis: undefined,
    metrics: new Metrics(),
    log: pino({ level: 'silent' }),
  } as unknown as Services;
  const worker = {
    dependency: 'worker',
    problem: 'no worker is running',
    run: () => Promise.reject(new Error('why')),
  } as const;
  let now = 0;
  const readiness = new Readiness(services, worker, () => now);
  const problem = { problem: 'no worker is running', reason: 'why', since: expect.any(String) };
  for (const at of [0, 0, 500, 999]) {
    now = at;
    expect(await readiness.check()).toEqual({ problems: [problem], warnings: [] });
  }
  expect(checks).toBe(1);
  now = 1_000;
  await Promise.all([readiness.check(), readiness.check()]);
  expect(checks).toBe(2);
});

test('a probe that fails repeatedly is logged on one line', async () => {
  const lines: Record<string, unknown>[] = [];
  const log = pino({ level: 'info' }, { write: (line) => void lines.push(parsed.parse(JSON.parse(line))) });
  const works = { check: () => Promise.resolve() };
  const client = { options: {}, connection: { withDeadline: () => Promise.resolve() } };
  const metrics = new Metrics();
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the parts that are checked
  const services = { catalog: works, blobs: works, client, redis: undefined, metrics, log } as unknown as Services;
  const worker = {
    dependency: 'worker',
    problem: 'no worker is running',
    run: () => Promise.reject(new Error('why')),
  } as const;
  let now = 0;
  const readiness = new Readiness(services, worker, () => (now += 10_000));
  const scrape = () => Promise.resolve({ contentType: 'text/plain', text: '' });
  const app = createOperationsApp({ config: { host: '127.0.0.1' }, readiness, scrape, metrics, log });
  const server = await listenHttp({ host: '127.0.0.1', port: 0, setting: 'EVERTURN_METRICS_PORT' });
  onTestFinished(() => server.stop());
  server.serve(app);
  for (let probe = 0; probe < 3; probe += 1) expect((await fetch(`${server.url}/readyz`)).status).toBe(503);
  expect(lines).toEqual([
    expect.objectContaining({ msg: 'no worker is running', dependency: 'worker', reason: 'why' }),
  ]);
  expect(JSON.stringify(lines)).not.toContain('stack');
});

const parsed = z.record(z.string(), z.unknown());
