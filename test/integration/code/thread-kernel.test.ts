import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { Seats } from '../../../src/features/code/host/seats.ts';
import { ThreadKernel, type Cell } from '../../../src/features/code/host/thread-kernel.ts';
import type { Kernel } from '../../../src/features/code/kernel/kernel.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { openSandbox, wallOf, type TestSandbox } from '../../support/kernels.ts';
import { storedVariables } from '../../support/stored-variables.ts';

let sandbox: TestSandbox;

// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

beforeAll(async () => {
  sandbox = await openSandbox(await wallOf('sandbox'));
});
afterAll(() => sandbox.remove());

/** A kernel of a thread, on a host that has room for one. */
function threadKernel({ idleMs = 600_000, startsAfter = Promise.resolve() } = {}) {
  const started: Kernel[] = [];
  const seats = new Seats({ capacity: 1, perSubject: () => 1 });
  const start = async (): Promise<Kernel> => {
    const kernel = await sandbox.startKernel();
    started.push(kernel);
    await startsAfter;
    return kernel;
  };
  const owner = { subject: 'ann', isSubAgent: false };
  const variables = storedVariables(sandbox, { isOn: false });
  const kernel = new ThreadKernel({ start, variables, seats, ...owner, idleMs, suspendMs: 600_000 });
  onTestFinished(() => kernel.stop('host_lost'));
  return { kernel, seats, started };
}

function cell(code: string, more: Partial<Cell> = {}): Cell {
  const { signal } = new AbortController();
  const own = { id: code, turnId: 'turn_1', code, timeoutMs: 60_000, modules: '', known: undefined, isOnBranch: true };
  return { ...own, signal, onOutput: () => undefined, ...more };
}

test('the end of a kernel is noticed while its code waits, and frees its place', async () => {
  const { kernel, seats, started } = threadKernel();
  const waits = cell('x = 1\n!true');
  expect(await kernel.run(waits)).toMatchObject({ calls: [{ kind: 'command' }] });
  expect([kernel.lossOf(waits.id), kernel.state?.status, seats.taken]).toEqual([undefined, 'suspended', 1]);
  const waiting = kernel.whileWaiting(waits.id);
  expect(waiting.aborted).toBe(false);
  await started[0]?.stop('a crash');
  // The commands that run for it end.
  expect([waiting.aborted, kernel.whileWaiting(waits.id).aborted]).toEqual([true, true]);
  expect(kernel.lossOf(waits.id)).toContain('(died)');
  expect([kernel.state?.status, seats.taken]).toEqual(['stopped', 0]);
  expect(await kernel.run(cell('1'))).toMatchObject({ begun: { reason: 'died', generation: 2 }, end: { exit: 'ok' } });
});

test('a kernel that is ended while it is started does not run on', async () => {
  const { promise: startsAfter, resolve } = Promise.withResolvers<void>();
  const { kernel, seats, started } = threadKernel({ startsAfter });
  const ran = kernel.run(cell('1'));
  await expect.poll(() => started.length).toBe(1);
  await kernel.stop('reset');
  resolve();
  expect(await ran).toMatchObject({ end: { exit: 'not_started', reason: expect.stringContaining('(reset)') } });
  expect([kernel.isRunning, seats.taken]).toEqual([false, 0]);
  expect(await started[0]?.ended).toMatchObject({ reason: 'stopped' });
  expect(await kernel.run(cell('1'))).toMatchObject({ generation: 1, end: { exit: 'ok' } });
});

test('a kernel that is ended while it waits for a place does not run on', async () => {
  const { kernel, seats, started } = threadKernel();
  const evict = () => Promise.resolve();
  const place = await seats.take({ subject: 'ann', isSubAgent: false, evict }, new AbortController().signal);
  const ran = kernel.run(cell('1'));
  // It waits now.
  await new Promise((resolve) => void setImmediate(resolve));
  await kernel.stop('host_lost');
  place.leave();
  expect(await ran).toMatchObject({ end: { exit: 'not_started', reason: expect.stringContaining('(host_lost)') } });
  expect([kernel.isRunning, seats.taken]).toEqual([false, 0]);
  expect(await started[0]?.ended).toMatchObject({ reason: 'stopped' });
});

test('the cell after an idle time does not run, its result names what is lost, and the one after it runs', async () => {
  const { kernel } = threadKernel({ idleMs: 500 });
  expect(await kernel.run(cell('x = 1'))).toMatchObject({ generation: 1, end: { exit: 'ok' } });
  await expect.poll(() => kernel.state?.status).toBe('stopped');
  const begun = { generation: 2, previousGeneration: 1, reason: 'idle', lost: ['x'] };
  const relies = cell('open("ran", "w").close()', { known: { generation: 1, isLost: false } });
  expect(await kernel.run(relies)).toMatchObject({ begun, end: { exit: 'stale', reason: 'idle', lost: ['x'] } });
  const next = cell('import os; print(os.path.exists("ran"))', { known: { generation: 2, isLost: false } });
  const cellEnd = { parts: [{ text: 'False\n' }] };
  expect(await kernel.run(next)).toMatchObject({ generation: 2, end: { exit: 'ok', cell: cellEnd } });
});

test('a cell that is cancelled before it starts leaves the kernel to its idle time', async () => {
  const { kernel } = threadKernel({ idleMs: 500 });
  const waits = cell('!true');
  await kernel.run(waits);
  expect(await kernel.run(cell('1', { signal: AbortSignal.abort() }))).toMatchObject({ end: { exit: 'not_started' } });
  await expect.poll(() => kernel.state?.status).toBe('stopped');
});

test('a kernel started early is reported with its first cell, and one that ends before leaves its place', async () => {
  const { kernel, seats, started } = threadKernel();
  await kernel.run(cell('x = 1'));
  await kernel.stop('reset');
  kernel.startEarly();
  await expect.poll(() => kernel.state).toMatchObject({ status: 'ready', generation: 2 });
  await started[1]?.stop('a crash');
  await expect.poll(() => kernel.state?.status).toBe('stopped');
  expect([seats.taken, kernel.state?.generation]).toEqual([0, 2]);
  kernel.startEarly();
  const known = { generation: 1, isLost: false };
  const begun = { generation: 2, previousGeneration: 1, reason: 'reset', lost: ['x'] };
  expect(await kernel.run(cell('x', { known }))).toMatchObject({ begun, end: { exit: 'stale', reason: 'reset' } });
  const ran = await kernel.run(cell('1', { known: { ...known, generation: 2 } }));
  expect(ran).toMatchObject({ generation: 2, end: { exit: 'ok' } });
  expect(ran.begun).toBeUndefined();
  expect(started).toHaveLength(3);
});
