import { expect, test } from 'vitest';
import { ModelError } from './model-error.ts';
import { wrongAddress } from './wrong-address.ts';

const failed = (fields: object, own: object = {}) =>
  Object.assign(
    new ModelError('connection', 'the model cannot be reached', { cause: Object.assign(new Error('no'), fields) }),
    own,
  );
const own = (baseUrl?: string) => ({ providerName: 'own', baseUrl });
const REFUSED = { code: 'ECONNREFUSED', address: '127.0.0.1', port: 18_799 };

test.each<[string, object, string | undefined, RegExp]>([
  [
    'refuses connections',
    REFUSED,
    'http://localhost:18799/v1',
    /never answered at localhost:18799: check that the server is running,/,
  ],
  [
    'has no name',
    { code: 'ENOTFOUND', hostname: 'olama' },
    'http://olama/v1',
    /at olama:80: check the name of the host,/,
  ],
  ['has no name, at its own URL', { code: 'ENOTFOUND', hostname: 'api.test' }, undefined, /at api\.test: /],
  [
    'signs its certificate itself',
    { code: 'DEPTH_ZERO_SELF_SIGNED_CERT' },
    'https://m.test/v1',
    /at m\.test:443: check the certificate/,
  ],
  [
    'has the certificate of another host',
    { code: 'ERR_TLS_CERT_ALTNAME_INVALID' },
    undefined,
    /its own address: check the certificate/,
  ],
  ['has an unknown CA', { code: 'UNABLE_TO_VERIFY_LEAF_SIGNATURE' }, 'https://m.test/v1', /NODE_EXTRA_CA_CERTS/],
])('the advice for a server that %s', (_, fields, baseUrl, advice) => {
  expect(wrongAddress(failed(fields), own(baseUrl))).toMatch(advice);
  expect(wrongAddress(failed(fields), own(baseUrl))).toContain(
    'base_url in EVERTURN_MODEL_PROVIDERS or OPENAI_BASE_URL',
  );
});

test.each([['ETIMEDOUT'], ['UND_ERR_CONNECT_TIMEOUT'], ['ECONNRESET'], ['EAI_AGAIN'], ['EHOSTUNREACH']])(
  'there is none for %s, which may pass by itself',
  (code) => expect(wrongAddress(failed({ code }), own())).toBeUndefined(),
);

test('the URL of a server may have a password, which the advice has not', () => {
  expect(wrongAddress(failed(REFUSED), own('http://ann:secret@m.test:1/v1'))).not.toMatch(/secret|ann/);
});

test('there is none for what a server has answered', () => {
  expect(wrongAddress(new ModelError('overloaded', 'ECONNREFUSED', { status: 503 }), own())).toBeUndefined();
});
