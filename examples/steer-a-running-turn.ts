// Steers a running turn: pauses it while a slow tool runs, gives it another message, and resumes it. The agent reads the
// message with its next model call, in the same turn.
import { createSession, events, send } from './everturn-client.ts';

const session = await createSession('demo');
const stream = await send(`/sessions/${session}/turns`, {
  input: [{ type: 'user.message', content: 'count slowly to 3' }],
});
let isSteered = false;
for await (const event of events(stream)) {
  if (event.type !== 'model.message.delta') console.log(`[${event.type}]`);
  else if (event.content) process.stdout.write(event.content);
  if (event.type !== 'model.message.delta' || isSteered) continue;
  isSteered = true;
  await send(`/sessions/${session}/pause`, {});
  const input = [{ type: 'user.message', content: 'show my notes' }];
  await send(`/sessions/${session}/turns`, { input, on_running: 'steer' });
  await send(`/sessions/${session}/resume`, {});
}
