import { json } from 'node:stream/consumers';
import { expect, test, vi } from 'vitest';
import { oneResponse } from '../../../test/support/one-response.ts';
import { BlobNotFound } from '../../blobs/blob-store.ts';
import { EngineError } from '../../engine/errors.ts';
import { TurnNotFound } from '../../engine/turn-log-reader.ts';
import { answerWhenSettled } from './answer-when-settled.ts';

test.each([
  [new TurnNotFound('turn_1'), 'run_not_found', 0],
  [new EngineError('session_not_found', 'there is no session ses_1'), 'run_not_found', 0],
  [new BlobNotFound('ses_1', 'b'), 'internal_error', 1],
  [new Error('a bug'), 'internal_error', 1],
])('the body of a run that cannot be read any more is an error: %s', async (failure, code, logged) => {
  const log = vi.fn();
  const follow = () => Promise.reject(failure);
  const { client } = await oneResponse((response) => {
    Object.assign(response.req, { log: { error: log } });
    return answerWhenSettled(response, follow);
  });
  expect(client.statusCode).toBe(200);
  expect(await json(client)).toMatchObject({ error: { code } });
  expect(log).toHaveBeenCalledTimes(logged);
});
