import type { JSONRPCMessage, ProtocolError, Transport } from '@modelcontextprotocol/client';
import { pino } from 'pino';
import { expect, test } from 'vitest';
import { standsFor } from './errors.ts';
import { boundMessages, readResultOf } from './message-bounds.ts';

function start() {
  const transport: Transport = {
    start: () => Promise.resolve(),
    send: () => Promise.resolve(),
    close: () => Promise.resolve(),
  };
  const listing = boundMessages(transport, { budget: { request: () => {} }, log: pino({ enabled: false }) });
  const received: JSONRPCMessage[] = [];
  // oxlint-disable-next-line unicorn/prefer-add-event-listener -- a transport is no event target
  transport.onmessage = (message) => void received.push(message);
  const request = (id: number, method: string) => transport.send({ jsonrpc: '2.0', id, method });
  const receive = (message: JSONRPCMessage) => transport.onmessage?.(message);
  return { listing, received, request, receive };
}

test('a message that cannot be read fails the request that it answers, and nothing else', async () => {
  const { received, request, receive } = start();
  await request(1, 'tools/call');
  const odd = {
    get content(): unknown {
      throw new Error('is odd');
    },
  };
  receive({ jsonrpc: '2.0', id: 1, result: odd });
  receive({
    jsonrpc: '2.0',
    method: 'notifications/message',
    get params(): Record<string, unknown> {
      throw new Error('is odd');
    },
  });
  expect(received).toEqual([
    { jsonrpc: '2.0', id: 1, error: expect.objectContaining({ message: 'its answer cannot be read: is odd' }) },
  ]);
  expect(
    received.map((message) => 'error' in message && standsFor(message.error as ProtocolError, 'unreadable')),
  ).toEqual([true]);
});

test('only the answer to a request for tools is read as a page of them', async () => {
  const { listing, received, request, receive } = start();
  await request(1, 'tools/list');
  await request(2, 'tools/call');
  receive({
    jsonrpc: '2.0',
    id: 2,
    result: { content: [{ type: 'text', text: 'found 1' }], tools: [{ name: 'saw' }] },
  });
  receive({ jsonrpc: '2.0', id: 1, result: { tools: [{ name: 'a' }, {}] } });
  const [ofCall, page] = received.map((message) => ('result' in message ? message.result : {}));
  expect(readResultOf(ofCall ?? {}).content).toEqual([{ type: 'text', text: 'found 1' }]);
  expect(page).toMatchObject({ tools: [{ name: 'a' }] });
  expect(listing).toMatchObject({ tools: 1, warnings: ['a tool without a name was left out'] });
});
