import { once } from 'node:events';
import { createServer, get } from 'node:http';
import type { AddressInfo } from 'node:net';
import express, { type Request, type Response } from 'express';
import { expect, onTestFinished, test, vi } from 'vitest';
import type { FoundKey, Keyring } from '../../auth/api-keys.ts';
import { LOCAL } from '../../auth/api-keys.ts';
import { TokenRefusedError, type TokenIssuer } from '../../auth/token-verifier.ts';
import { authenticate } from './authenticate.ts';
import type { RequestLimit } from './rate-limit.ts';

test('a client that hangs up while its key is looked up leaves no timer behind', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  onTestFinished(() => void vi.useRealTimers());
  const lookupStarted = Promise.withResolvers<void>();
  const found = Promise.withResolvers<FoundKey>();
  const find = async (): Promise<FoundKey> => {
    lookupStarted.resolve();
    return found.promise;
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- has only what the function uses
  const keyring = { isKeyless: false, find } as unknown as Keyring;
  const unknownKeys = vi.fn<RequestLimit>();
  const hungUp = Promise.withResolvers<void>();
  const authenticated = Promise.withResolvers<void>();
  const app = express();
  app.get('/', async (request, response) => {
    response.once('close', hungUp.resolve);
    await authenticate(request, response, { keyring, issuer: undefined, unknownKeys });
    authenticated.resolve();
  });
  const server = createServer(app).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const request = get({ host: '127.0.0.1', port, headers: { authorization: 'Bearer key-of-ann' } });
  request.on('error', () => undefined);
  await lookupStarted.promise;
  request.destroy();
  await hungUp.promise;
  found.resolve({ caller: LOCAL });
  await authenticated.promise;
  expect(vi.getTimerCount()).toBe(0);
});

test.each([
  ['forged', true, 1],
  ['expired', false, 0],
])('a token that is %s counts as an unknown key: %s', async (_, isForged, counted) => {
  const count = vi.fn(() => Promise.resolve());
  const identify = () => Promise.reject(new TokenRefusedError('no', { isForged, cause: undefined }));
  const authenticated = authenticate(
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only what the function reads
    { headers: { authorization: 'Bearer a.b.c' } } as Request,
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- unused for a token that is rejected
    {} as Response,
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only what the function uses
    {
      keyring: { isKeyless: false } as Keyring,
      issuer: { identify } as unknown as TokenIssuer,
      unknownKeys: count,
    },
  );
  await expect(authenticated).rejects.toMatchObject({ code: 'unauthenticated' });
  expect(count).toHaveBeenCalledTimes(counted);
});
