import { json } from 'node:stream/consumers';
import { expect, test, vi } from 'vitest';
import { oneResponse } from '../../../test/support/one-response.ts';
import { BlobNotFound } from '../../blobs/blob-store.ts';
import { EngineError } from '../../engine/errors.ts';
import { TurnNotFound } from '../../engine/turn-log-reader.ts';
import { respondWhenSettled } from './run-responder.ts';
import type { Run } from './wire/run.ts';

const FAILURES = [
  [new TurnNotFound('turn_1'), 0],
  [new EngineError('session_not_found', 'there is no session ses_1'), 0],
  [new BlobNotFound('ses_1', 'b'), 1],
  [new Error('a bug'), 1],
] as const;

test.each(FAILURES)('a run that cannot be read is an error of the request: %s', async (failure) => {
  const { client } = await oneResponse(async (response) => {
    const answer = respondWhenSettled(response, () => Promise.reject(failure));
    await expect(answer).rejects.toBe(failure);
    response.status(500).end();
  });
  expect(client.statusCode).toBe(500);
});

test.each(FAILURES)('a run that cannot be read any more has no end: %s', async (failure, logged) => {
  const log = vi.fn();
  const { client } = await oneResponse((response) => {
    Object.assign(response.req, { log: { error: log } });
    return respondWhenSettled(response, ({ onRead }) => {
      onRead();
      return Promise.reject(failure);
    });
  });
  expect(client.statusCode).toBe(200);
  await expect(json(client)).rejects.toThrow('aborted');
  expect(client.complete).toBe(false);
  expect(log).toHaveBeenCalledTimes(logged);
});

test('the headers are sent when the run has been read, and the run when it has settled', async () => {
  const settled = Promise.withResolvers<Run>();
  const { client } = await oneResponse((response) =>
    respondWhenSettled(response, ({ onRead }) => {
      onRead();
      return settled.promise;
    }),
  );
  expect([client.statusCode, client.headers['content-type']]).toEqual([200, 'application/json; charset=utf-8']);
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- it is only sent
  settled.resolve({ id: 'run_1' } as Run);
  expect(await json(client)).toEqual({ id: 'run_1' });
});
