import { once } from 'node:events';
import { createServer, get } from 'node:http';
import type { AddressInfo } from 'node:net';
import express from 'express';
import { expect, onTestFinished, test, vi } from 'vitest';
import type { FoundKey, Keyring } from '../../auth/api-keys.ts';
import { authenticate, LOCAL } from './authenticate.ts';
import type { UnknownKeyLimiter } from './unknown-key-limiter.ts';

test('whoever hangs up while the key is looked up leaves nothing behind', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  onTestFinished(() => void vi.useRealTimers());
  const asked = Promise.withResolvers<void>();
  const found = Promise.withResolvers<FoundKey>();
  const find = async (): Promise<FoundKey> => {
    asked.resolve();
    return found.promise;
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what is asked of them
  const keyring = { isKeyless: false, find } as unknown as Keyring;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the key is known: it is not asked
  const guesses = {} as UnknownKeyLimiter;
  const hungUp = Promise.withResolvers<void>();
  const authenticated = Promise.withResolvers<void>();
  const app = express();
  app.get('/', async (request, response) => {
    response.once('close', hungUp.resolve);
    await authenticate(request, response, { keyring, issuer: undefined, guesses });
    authenticated.resolve();
  });
  const server = createServer(app).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const request = get({ host: '127.0.0.1', port, headers: { authorization: 'Bearer key-of-ann' } });
  request.on('error', () => undefined);
  await asked.promise;
  request.destroy();
  await hungUp.promise;
  found.resolve({ caller: LOCAL });
  await authenticated.promise;
  expect(vi.getTimerCount()).toBe(0);
});
