// An agent uses an MCP server that requires a sign-in. The turn shows a link, waits, and continues after the sign-in.
import { agentSpec, createDraft, events, send } from './everturn-client.ts';

const [url = ''] = process.argv.slice(2);
if (!URL.canParse(url)) throw new Error('usage: npx node examples/sign-in-to-an-mcp-server.ts <URL of an MCP server>');
const session = await createDraft({
  ...(await agentSpec('demo')),
  mcp_servers: [{ type: 'inline', name: 'mine', url }],
  // Without this the turn ends with the link, and a turn with an empty input continues it.
  config: { pause: 'wait' },
});
const input = [{ type: 'user.message', content: 'Which tools do you have?' }];
for await (const event of events(await send(`/sessions/${session}/turns`, { input }))) {
  if (event.type === 'model.message.delta') process.stdout.write(event.content ?? '');
  for (const { name, auth_url } of event.mcp_servers ?? []) {
    if (auth_url !== undefined) console.log(`[sign-in] ${name}: open ${auth_url}`);
  }
  if (event.type === 'turn.done') console.log(`\n[turn] ${event.state?.status}`);
}
