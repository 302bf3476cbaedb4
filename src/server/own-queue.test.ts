import { TransportError, Worker } from '@temporalio/worker';
import { pino } from 'pino';
import { afterEach, expect, test, vi } from 'vitest';
import { isUnavailable } from '../engine/unavailable.ts';
import { OwnQueue } from './own-queue.ts';
import { eventually } from '../../test/support/eventually.ts';

afterEach(() => void vi.restoreAllMocks());

/** A worker that runs until it is shut down, or fails. */
function fakeWorker() {
  const running = Promise.withResolvers<void>();
  const worker = { run: () => running.promise, getState: () => 'RUNNING', shutdown: () => running.resolve() };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the functions that are called
  return { worker: worker as unknown as Worker, fail: running.reject };
}

const queueOf = () =>
  new OwnQueue({ sharedQueue: 'everturn', log: pino({ level: 'silent' }), options: () => ({ activities: {} }) });

test('a start that failed is an outage for the call that asked, and the next call starts again', async () => {
  const create = vi.spyOn(Worker, 'create').mockRejectedValueOnce(new TransportError('connection refused'));
  const queue = queueOf();
  const error: unknown = await queue.open().catch((thrown: unknown) => thrown);
  expect(isUnavailable(error)).toBe(true);
  const { worker } = fakeWorker();
  create.mockResolvedValueOnce(worker);
  const [one, other] = await Promise.all([queue.open(), queue.open()]);
  expect(one).toMatch(/^everturn\/[0-9a-f-]{36}$/);
  expect(other).toBe(one);
  expect(create).toHaveBeenCalledTimes(2);
  await queue.stop();
});

test('an error that is no outage is thrown as it is; stopping does not fail for it', async () => {
  const bug = new TypeError('no such option');
  vi.spyOn(Worker, 'create').mockRejectedValue(bug);
  const queue = queueOf();
  const opened = queue.open();
  const stopped = queue.stop();
  await expect(opened).rejects.toBe(bug);
  await stopped;
});

test('a worker that has failed is replaced by the next call', async () => {
  const [first, second] = [fakeWorker(), fakeWorker()];
  const create = vi.spyOn(Worker, 'create').mockResolvedValueOnce(first.worker).mockResolvedValueOnce(second.worker);
  const queue = queueOf();
  const name = await queue.open();
  first.fail(new Error('fatal'));
  await eventually(async () => {
    expect(await queue.open()).toBe(name);
    expect(create).toHaveBeenCalledTimes(2);
  });
  await queue.stop();
});
