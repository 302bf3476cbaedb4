// A client follows a session over all of its turns, whichever client starts them, with one cursor.
import { createSession, events, send } from './everturn-client.ts';

const session = await createSession('demo');
let cursor = 0;
let turns = 0;

/** Starts a turn without following it, as another client does. */
async function ask(content: string): Promise<void> {
  await send(`/sessions/${session}/turns`, { input: [{ type: 'user.message', content }], stream: false });
}

/** Prints the session from the cursor on, and disconnects when `count` turns have ended in all. */
async function follow(count: number): Promise<void> {
  for await (const event of events(await send(`/sessions/${session}/stream?after=${cursor}`))) {
    cursor = event.sequence_number;
    if (event.type === 'turn.created') console.log(`[turn ${turns + 1}] ${event.turn_id}`);
    if (event.type === 'model.message.delta') process.stdout.write(event.content ?? '');
    if (event.type !== 'turn.done') continue;
    console.log(`\n[turn ${++turns}] ${event.state?.status}`);
    if (turns === count) return;
  }
}

await ask('What can you do?');
await follow(1);
// From here on the stream waits for the next turn.
const following = follow(2);
await ask('show my notes');
await following;
