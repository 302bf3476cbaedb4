import { expect, test } from 'vitest';
import { networkCause } from './network-cause.ts';

const refused = Object.assign(new Error('connect'), { code: 'ECONNREFUSED', address: '127.0.0.1', port: 1 });
const unknown = Object.assign(new Error('lookup'), { code: 'ENOTFOUND', hostname: 'models.test' });
const cyclic = new Error('cyclic');
cyclic.cause = cyclic;

test.each<[string, unknown, object]>([
  [
    'inside of others',
    new Error('a', { cause: new Error('b', { cause: refused }) }),
    { code: 'ECONNREFUSED', address: '127.0.0.1:1' },
  ],
  ['of a name', new TypeError('fetch failed', { cause: unknown }), { code: 'ENOTFOUND', address: 'models.test' }],
  [
    'of several addresses',
    Object.assign(new AggregateError([refused]), { code: 'ECONNREFUSED' }),
    { code: 'ECONNREFUSED', address: '127.0.0.1:1' },
  ],
  ['that a provider has sent', Object.assign(new Error('no'), { code: 'INVALID_KEY', status: 400 }), {}],
  ['in small letters', Object.assign(new Error('no'), { code: 'context_length_exceeded' }), {}],
  ['without an end', cyclic, {}],
  ['that is no error', 'text', {}],
])('the network error %s', (_what, error, cause) => {
  expect(networkCause(error)).toEqual(cause);
});
