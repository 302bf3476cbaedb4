// The model reads a skill before it begins. The server is started with EVERTURN_SKILLS=examples/skills.
import { agentSpec, createDraft, events, send } from './everturn-client.ts';

const spec = await agentSpec('demo');
const session = await createDraft({ ...spec, skills: [{ name: 'release-notes' }] });
const input = [{ type: 'user.message', content: 'Follow the skill release-notes: what is new?' }];
for await (const event of events(await send(`/sessions/${session}/turns`, { input }))) {
  if (event.type === 'model.message.delta') process.stdout.write(event.content ?? '');
  if (event.type === 'tool.response') console.log(`\n[read] ${event.content}`);
  if (event.type === 'turn.done') console.log(`\n[turn] ${event.state?.status}`);
}
