// An agent that answers in JSON. Its first answer does not fit the schema, so the server asks the model for another one.
import { agentSpec, createDraft, events, send } from './everturn-client.ts';

const schema = {
  type: 'object',
  properties: { city: { type: 'string' }, people: { type: 'integer' } },
  required: ['city', 'people'],
};
const format = { type: 'json_schema', json_schema: { name: 'place', schema } };
const session = await createDraft({ ...(await agentSpec('demo')), response_format: format });

const input = [{ type: 'user.message', content: 'Where do most people live?' }];
for await (const event of events(await send(`/sessions/${session}/turns`, { input }))) {
  if (event.type === 'model.message.delta') process.stdout.write(event.content ?? '');
  if (event.misfit !== undefined) console.log(`\n[not accepted] ${event.misfit}`);
  if (event.type === 'turn.done') console.log(`\n[turn] ${event.state?.status}`, event.state?.output_json);
}
