import { once } from 'node:events';
import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { expect, test } from 'vitest';
import { disconnection } from './disconnection.ts';

test('a signal aborts at the end of a connection, also if that came before', async () => {
  const response = new ServerResponse(new IncomingMessage(new Socket()));
  const before = disconnection(response);
  expect(before.aborted).toBe(false);
  response.destroy();
  await once(response, 'close');
  expect(before.aborted).toBe(true);
  expect(disconnection(response).aborted).toBe(true);
});
