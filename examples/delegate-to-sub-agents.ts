// The model starts two sub-agents, which work in parallel. Their answers are the results of its calls.
import { createSession, events, send } from './everturn-client.ts';

const session = await createSession('demo');
const input = [{ type: 'user.message', content: 'delegate: show my notes; say hello' }];
for await (const event of events(await send(`/sessions/${session}/turns`, { input }))) {
  if (event.type === 'thread.created') console.log(`[sub-agent] ${event.title} starts`);
  if (event.type === 'thread.done') console.log(`[sub-agent] ${event.title}: ${event.output?.content ?? 'failed'}`);
  if (event.type === 'turn.done') console.log(`[turn] ${event.state?.status}`);
}
