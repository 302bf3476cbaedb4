import { createInterface } from 'node:readline';

/**
 * An MCP server over standard input and output that counts in its memory: `look` and `bump` answer with the count and the
 * id of the process. A raw one, so that it starts at once.
 */
const VERSION = '2025-11-25';
const TOOLS = ['look', 'bump'].map((name) => ({ name, inputSchema: { type: 'object' } }));

let count = 0;

for await (const line of createInterface(process.stdin)) {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by Everturn
  const { id, method, params } = JSON.parse(line) as { id?: number; method: string; params?: { name?: string } };
  if (id === undefined) continue;
  const result = resultOf(method, params?.name);
  const answer = result ? { result } : { error: { code: -32601, message: 'Method not found' } };
  process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', id, ...answer })}\n`);
}

function resultOf(method: string, tool: string | undefined): object | undefined {
  switch (method) {
    case 'initialize':
      return { protocolVersion: VERSION, capabilities: { tools: {} }, serverInfo: { name: 'count', version: '1' } };
    case 'tools/list':
      return { tools: TOOLS };
    case 'tools/call':
      if (tool === 'bump') count += 1;
      return { content: [{ type: 'text', text: JSON.stringify({ count, pid: process.pid }) }] };
    default:
      return undefined;
  }
}
