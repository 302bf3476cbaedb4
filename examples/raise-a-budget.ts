// Raises the budget of a turn that has reached it: the turn is paused before its next model call, and continues.
import { agentSpec, createDraft, events, send } from './everturn-client.ts';

const spec = { ...(await agentSpec('demo')), config: { budget: { steps: 1 } } };
const session = await createDraft(spec);
const stream = await send(`/sessions/${session}/turns`, {
  input: [{ type: 'user.message', content: 'show my notes' }],
});
for await (const event of events(stream)) {
  if (event.type === 'model.message.delta') process.stdout.write(event.content ?? '');
  else console.log(`[${event.type}]`);
  if (event.type !== 'turn.paused' || !event.budget) continue;
  const { limit, spent } = event.budget;
  console.log(`[budget] ${spent.steps} of ${limit.steps} model calls`);
  await send(`/sessions/${session}/resume`, { budget: { steps: 10 } });
}
