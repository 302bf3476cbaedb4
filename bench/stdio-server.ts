import { createInterface } from 'node:readline';
import { mcpResult } from './instant-mcp.ts';

/** The MCP server of `instant-servers.ts` as a program: its tools respond immediately. */

for await (const line of createInterface(process.stdin)) {
  const { id, method } = JSON.parse(line) as { id?: number; method?: string };
  if (id !== undefined) process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', id, ...mcpResult(method) })}\n`);
}
