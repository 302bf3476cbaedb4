import { expect, test } from 'vitest';
import { PayloadTooLarge } from '../../blobs/offload.ts';
import { EngineError, isRejected } from '../../engine/errors.ts';
import { ApiError } from './errors.ts';

test('errors of the API and of the engine say alike whether a request was rejected', () => {
  const rejected = [
    new ApiError('invalid_request', ''),
    new ApiError('too_many_turns', ''),
    new EngineError('forbidden', ''),
  ];
  const failed = [
    new ApiError('unavailable', ''),
    new ApiError('internal_error', ''),
    new EngineError('unavailable', ''),
  ];
  expect([...rejected, ...failed].map(isRejected)).toEqual([true, true, true, false, false, false]);
  expect([Object.create(PayloadTooLarge.prototype), new Error('unexpected')].map(isRejected)).toEqual([true, false]);
});
