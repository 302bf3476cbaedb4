// A receiver of webhooks: it verifies each message, and remembers the ids that it has seen.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { Webhook } from 'standardwebhooks';
import { z } from 'zod';
import { createSession, printTurn, request, send } from './everturn-client.ts';

const registered = z.object({ data: z.object({ id: z.string(), secret: z.string() }) });
const message = z.object({
  id: z.string(),
  type: z.string(),
  data: z.object({
    session_id: z.string(),
    turn_id: z.string(),
    turn: z.object({ state: z.object({ status: z.string() }) }).optional(),
    action: z.object({ status: z.string() }).optional(),
  }),
});

const session = await createSession('demo');
const seen = new Set<string>();
const done = Promise.withResolvers<void>();

/** Answers one message. */
async function receive(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
  const body = await text(incoming);
  const headers = Object.fromEntries(Object.entries(incoming.headers).map(([name, value]) => [name, String(value)]));
  const { id, type, data } = message.parse(new Webhook(webhook.secret).verify(body, headers));
  response.writeHead(204).end();
  // A message may arrive twice. Others are about other sessions.
  if (seen.has(id) || data.session_id !== session) return;
  seen.add(id);
  console.log(`[webhook] ${type} ${data.turn_id}: ${data.action?.status ?? data.turn?.state.status}`);
  if (type === 'turn.done') done.resolve();
}

const receiver = createServer((incoming, response) => {
  receive(incoming, response).catch((error: unknown) => response.writeHead(400).end(String(error)));
}).listen(0, '127.0.0.1');
await once(receiver, 'listening');
const address = receiver.address();
if (typeof address !== 'object' || address === null) throw new Error('the receiver has no port');
const created = await request('POST', '/webhooks', {
  url: `http://127.0.0.1:${address.port}/`,
  events: ['turn.done', 'action.created'],
});
const { data: webhook } = registered.parse(await created.json());
const input = [{ type: 'user.message', content: 'note: water the plants' }];
await printTurn(await send(`/sessions/${session}/turns`, { input }));
await done.promise;
await request('DELETE', `/webhooks/${webhook.id}`);
receiver.close();
receiver.closeAllConnections();
