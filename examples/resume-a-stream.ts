// The connection breaks in the middle of a message. Nothing is lost: a cursor works on any node and never expires.
import { createSession, events, send, type TurnEvent } from './everturn-client.ts';

/** The text of each message by id: an event with a known id replaces the stored text, a delta extends it. */
const messages = new Map<string, string>();
let turnId = '';
let cursor = 0;

function fold(event: TurnEvent): void {
  cursor = event.sequence_number;
  if (event.type === 'turn.created') turnId = event.turn_id ?? '';
  const { id } = event;
  const text = event.content ?? '';
  if (event.type === 'model.message') messages.set(id, text);
  if (event.type === 'model.message.delta') messages.set(id, (messages.get(id) ?? '') + text);
}

/** Reads a few events, then disconnects, as an unstable connection does. Returns whether the turn has ended. */
async function readSome(response: Response): Promise<boolean> {
  let count = 0;
  for await (const event of events(response)) {
    fold(event);
    if (event.type === 'turn.done') return true;
    if (++count === 5) break;
  }
  return false;
}

const session = await createSession('demo');
const input = [{ type: 'user.message', content: 'What can you do?' }];
let isDone = await readSome(await send(`/sessions/${session}/turns`, { input }));
let connections = 1;
for (; !isDone; connections++) {
  const path = `/sessions/${session}/turns/${turnId}/subscribe`;
  isDone = await readSome(await send(path, { after_sequence_number: cursor }));
}
console.log([...messages.values()].join('\n'));
console.log(`[turn] done, after ${connections} connections`);
