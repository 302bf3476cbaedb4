import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import type { RequestListener, ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { listen } from '../src/demo/local-server.ts';

/**
 * A model and an MCP server that answer at once, in a process of their own as real ones are. The model calls the tool
 * until it has as many results as the user has asked for: "<steps>".
 */

const TOOL_RESULT = 'x'.repeat(2048);

const server = await listen((request, response) => {
  text(request).then(
    (body) => answer(body, response),
    () => response.destroy(),
  );
}, '/v1');

const handler = createMcpHandler(() => {
  const mcp = new McpServer({ name: 'bench', version: '1' });
  mcp.registerTool('look', { annotations: { readOnlyHint: true } }, () => ({
    content: [{ type: 'text', text: TOOL_RESULT }],
  }));
  return mcp;
});
const mcp = await listen(toNodeHandler(handler) as RequestListener, '/mcp');

process.stdout.write(`${JSON.stringify({ model: server.url, mcp: mcp.url })}\n`);

function answer(body: string, response: ServerResponse): void {
  // Parsed by hand: what is measured is Everturn, and the two share the machine.
  const steps = Number(/"role":"user","content":"(\d+)"/.exec(body)?.[1] ?? 0);
  const done = body.split('"role":"tool"').length - 1;
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const chunk = (delta: object, finish: string | null): string =>
    `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;
  const call = { index: 0, id: `call_${done}`, type: 'function', function: { name: 'look', arguments: '{}' } };
  const parts =
    done < steps
      ? chunk({ tool_calls: [call] }, null) + chunk({}, 'tool_calls')
      : chunk({ content: 'done' }, null) + chunk({}, 'stop');
  const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
  response.end(`${parts}data: ${JSON.stringify({ choices: [], usage })}\n\ndata: [DONE]\n\n`);
}
