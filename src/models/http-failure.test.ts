import { expect, test } from 'vitest';
import { ResponseTooLargeError } from '../lib/response-bounds.ts';
import { brokenStreamError, connectionError, overflowError } from './http-failure.ts';

const refused = new Error('connect ECONNREFUSED ::1:11434');
const cyclic = new Error('cyclic');
cyclic.cause = cyclic;

test('the message of a connection that fails at all addresses of a host names one of them', () => {
  const failed = new Error('Connection error.', {
    cause: new TypeError('fetch failed', { cause: new AggregateError([refused]) }),
  });
  expect(connectionError(failed).message).toBe('the model cannot be reached (connect ECONNREFUSED ::1:11434)');
});

test('the message of a connection without a cause', () => {
  expect(connectionError(new Error('Connection error.')).message).toBe('the model cannot be reached');
});

test('causes without an end have an end', () => {
  expect(overflowError(cyclic)).toBeUndefined();
  expect(brokenStreamError(cyclic).message).toBe("the model's answer broke off: cyclic");
});

test('an answer that is too large is found below other errors', () => {
  const tooLarge = new ResponseTooLargeError('it has more than 1 byte');
  expect(overflowError(new Error('a', { cause: new Error('b', { cause: tooLarge }) }))).toMatchObject({
    failure: 'bad_request',
    message: "the model's answer was not read: it has more than 1 byte",
  });
});
