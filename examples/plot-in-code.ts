// Code calls a tool that asks. It waits in its kernel, also while the server is killed and starts again, and then draws
// a plot: plot.png, or the file that is given. The server is started with EVERTURN_MCP_SERVERS=examples/mcp-servers.json.
import { writeFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { agentSpec, answer, createDraft, events, printTurn, send } from './everturn-client.ts';

const demoAgent = z.object({
  model: z.looseObject({}),
  mcp_servers: z.tuple([z.looseObject({ name: z.string() })]),
});

const [file = 'plot.png'] = process.argv.slice(2);
const { model, mcp_servers: servers } = demoAgent.parse(await agentSpec('demo'));
const [server] = servers;
const session = await createDraft({
  model,
  mcp_servers: [{ ...server, allowed_callers: ['code'] }],
  code_actions: { approvals: 'allow' },
});
const code = `
import matplotlib.pyplot as plt
from mcptools.${server.name}.add_note import run, Params

squares = [n * n for n in range(20)]
print(run(Params(note=f"the last square is {squares[-1]}")))
plt.plot(squares)
plt.show()
`;

const { state } = await printTurn(await startTurn(`run: ${code}`));
const decisions = (state?.required_actions ?? []).flatMap(({ thread_id, tool_calls }) =>
  tool_calls.map(({ id, action }) => {
    console.log(`[approval] ${action?.display}`);
    return { type: 'user.tool_approval', thread_id, tool_call_id: id, approval: { status: 'allow' } };
  }),
);
console.log('[approval] kill the server and start it again, if you like; then press Enter to allow the call');
for await (const _ of process.stdin) break;
for await (const event of events(await answer(session, decisions))) {
  if (event.type === 'tool.response') console.log(`[tool] ${event.content}`);
  for (const { url } of event.files ?? []) {
    const plot = await send(url.replace('/v1/agents', ''));
    await writeFile(file, Buffer.from(await plot.arrayBuffer()));
    console.log(`[plot] ${file}`);
  }
  if (event.type === 'turn.done') console.log(`[turn] ${event.state?.status}`);
}

/** Starts a turn. At the first start of a server the environment of Python is built, which takes a minute. */
async function startTurn(content: string): Promise<Response> {
  for (;;) {
    try {
      return await send(`/sessions/${session}/turns`, { input: [{ type: 'user.message', content }] });
    } catch (error) {
      if (!String(error).startsWith('Error: 503')) throw error;
      await sleep(5_000);
    }
  }
}
