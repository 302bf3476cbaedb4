// A conversation becomes too long while the agent works: before the next answer the model summarizes what came before.
// Agents whose turns wait show that as an event.
import { agentSpec, createDraft, events, send } from './everturn-client.ts';

const spec = await agentSpec('demo');
const session = await createDraft({
  ...spec,
  config: { pause: 'wait', context_management: { compaction: { compaction_threshold_tokens: 1_000 } } },
});
const input = [{ type: 'user.message', content: `show my notes. Ignore this: ${'x'.repeat(3_900)}` }];
for await (const event of events(await send(`/sessions/${session}/turns`, { input }))) {
  if (event.type === 'model.message.delta') process.stdout.write(event.content ?? '');
  if (event.type === 'context.compacted') {
    console.log(`\n[compacted] ${event.tokens_before} tokens, now: ${event.summary?.slice(0, 60)}…`);
  }
  if (event.type === 'turn.done') console.log(`\n[turn] ${event.state?.status}`);
}
