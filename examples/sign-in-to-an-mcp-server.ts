// An agent uses an MCP server that requires a sign-in. The turn ends with a link; the next turn continues.
import { createInterface } from 'node:readline/promises';
import { createDraft, printTurn, send } from './everturn-client.ts';

const [url = ''] = process.argv.slice(2);
if (!URL.canParse(url)) throw new Error('usage: node examples/sign-in-to-an-mcp-server.ts <URL of an MCP server>');
const session = await createDraft({
  model: { name: process.env['EVERTURN_DEMO_MODEL'] ?? 'gpt-5-mini' },
  mcp_servers: [{ type: 'inline', name: 'mine', url }],
});
const input = [{ type: 'user.message', content: 'Which tools do you have?' }];
let { state } = await printTurn(await send(`/sessions/${session}/turns`, { input }));
const links = (state?.required_actions ?? []).flatMap(({ mcp_servers = [] }) => mcp_servers);
for (const { name, auth_url } of links) console.log(`[sign-in] ${name}: open ${auth_url}`);
if (links.length > 0) {
  const terminal = createInterface(process.stdin);
  await terminal.question('');
  terminal.close();
  // Without an input the conversation continues where it has stopped.
  ({ state } = await printTurn(await send(`/sessions/${session}/turns`, { input: [] })));
}
console.log(`[turn] ${state?.status}`);
