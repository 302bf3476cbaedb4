import { pino } from 'pino';
import { expect, test } from 'vitest';
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
