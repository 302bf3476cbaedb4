// Messages that are sent while a turn runs: each waits until the turns before it have ended.
import { z } from 'zod';
import { createSession, events, send } from './everturn-client.ts';

const session = await createSession('demo');

/** Prints a turn from its place in the queue to its end. */
async function print(number: number, stream: Response): Promise<void> {
  for await (const { type, state, content } of events(stream)) {
    // It comes again when a queued turn begins.
    if (type === 'turn.created') {
      console.log(`[turn ${number}] ${state?.queued ? `waits at position ${state.queued.position}` : 'begins'}`);
    }
    if (type === 'model.message.delta') process.stdout.write(content ?? '');
    if (type === 'turn.done') console.log(`\n[turn ${number}] ${state?.status}`);
  }
}

const turns: Promise<void>[] = [];
for (const content of ['What can you do?', 'show my notes', 'Thank you.']) {
  const body = { input: [{ type: 'user.message', content }], on_running: 'queue' };
  // The response begins when the turn is created, and ends when the turn has ended.
  turns.push(print(turns.length + 1, await send(`/sessions/${session}/turns`, body)));
}
const queue = z.object({ data: z.array(z.object({ id: z.string() })) });
const { data } = queue.parse(await (await send(`/sessions/${session}/queue`)).json());
console.log(`[queue] ${data.length} turns wait`);
await Promise.all(turns);
