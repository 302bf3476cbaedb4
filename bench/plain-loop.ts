import { text } from 'node:stream/consumers';
import type { ServerResponse } from 'node:http';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import OpenAI from 'openai';
import type { ChatCompletionMessageParam, ChatCompletionTool } from 'openai/resources/chat/completions';
import { listen } from '../src/demo/local-server.ts';

/**
 * An agent as a plain loop: it takes the body of `POST …/turns`, calls the model and the MCP server's tools until the model
 * calls none, and streams the model's output. It uses the usual client libraries, which keep their connections open, and
 * nothing remains of a turn that is interrupted. Runs in its own process, as Everturn does, and prints its URL. Arguments:
 * the URLs of the model and of the MCP server, and the model's name.
 */

const [modelUrl = '', mcpUrl = '', model = ''] = process.argv.slice(2);

const openai = new OpenAI({ apiKey: 'none', baseURL: modelUrl });
const mcp = new Client({ name: 'plain-loop', version: '1' });
await mcp.connect(new StreamableHTTPClientTransport(new URL(mcpUrl)));
const { tools: listed } = await mcp.listTools();
const tools = listed.map(({ name, inputSchema }): ChatCompletionTool => ({
  type: 'function',
  function: { name, parameters: inputSchema },
}));

const { url } = await listen((request, response) => {
  text(request)
    .then((body) => runTurn(body, response))
    .catch((error: unknown) => {
      process.stderr.write(`${String(error)}\n`);
      response.destroy();
    });
}, '');
process.stdout.write(`${JSON.stringify({ url })}\n`);

async function runTurn(body: string, response: ServerResponse): Promise<void> {
  const { input } = JSON.parse(body) as { input: { content: string }[] };
  const messages: ChatCompletionMessageParam[] = input.map(({ content }) => ({ role: 'user', content }));
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  for (;;) {
    const stream = openai.chat.completions.stream({ model, messages, tools });
    for await (const { choices } of stream) response.write(`data: ${JSON.stringify(choices)}\n\n`);
    const message = await stream.finalMessage();
    messages.push(message);
    const calls = (message.tool_calls ?? []).filter((call) => call.type === 'function');
    if (calls.length === 0) break;
    for (const { id, function: tool } of calls) {
      const { content } = await mcp.callTool({ name: tool.name, arguments: JSON.parse(tool.arguments) });
      messages.push({ role: 'tool', tool_call_id: id, content: JSON.stringify(content) });
    }
  }
  response.end();
}
