// Asks a model that has a fallback, and prints which of them answered. The models are of providers of this server:
// npx node examples/fall-back-to-another-model.ts openai/gpt-5 claude/claude-sonnet-4-5
import { createSession, events, request, send } from './everturn-client.ts';

const [name, ...fallbacks] = process.argv.slice(2);
if (name === undefined || fallbacks.length === 0) throw new Error('give the names of two models or more');
await request('PUT', '/agents/with-fallbacks', { model: { name, fallbacks } });

const session = await createSession('with-fallbacks');
const input = [{ type: 'user.message', content: 'Which model are you?' }];
for await (const event of events(await send(`/sessions/${session}/turns`, { input }))) {
  // The base of a message that is known already begins it anew: another attempt replaces what was printed so far.
  if (event.type === 'model.message') process.stdout.write('\n');
  if (event.type === 'model.message.delta') process.stdout.write(event.content ?? '');
  for (const { provider, model, failure } of event.attempts ?? []) {
    process.stdout.write(`\n[failed] ${provider}/${model}: ${failure}`);
  }
  if (event.model !== undefined) console.log(`\n[model] ${event.provider}/${event.model}`);
}
