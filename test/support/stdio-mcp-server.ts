import { once } from 'node:events';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { McpBehaviour } from './mcp-behaviour.ts';
import { newerServer, olderServer } from './mcp-sdks.ts';

/**
 * An MCP server over standard input and output: `node stdio-mcp-server.ts <era> [quirk…]`.
 * - `noisy`: prints text that is no message on both outputs.
 * - `strict`: ends when the first message is not `initialize`.
 * - `stubborn`: neither the end of its input nor SIGTERM ends it.
 */
const [era, ...quirks] = process.argv.slice(2);

if (quirks.includes('noisy')) {
  process.stdout.write('Welcome!\n{"not": "a message"}\n');
  process.stderr.write(`listening\n${'x'.repeat(10_000)}\nlast words`);
}
if (quirks.includes('stubborn')) {
  process.on('SIGTERM', () => {});
  setInterval(() => {}, 1_000);
}
if (quirks.includes('strict')) {
  const [first] = (await once(process.stdin, 'data')) as [Buffer];
  if (!first.subarray(0, first.indexOf('\n')).includes('"initialize"')) process.exit(1);
  process.stdin.unshift(first);
}
if (era === '2026-07-28') {
  const behaviour = new McpBehaviour(() => server.sendToolListChanged());
  const server = newerServer(behaviour);
  serveStdio(() => server, { legacy: 'reject' });
} else {
  const behaviour = new McpBehaviour(() => server.sendToolListChanged());
  const server = olderServer(behaviour);
  await server.connect(new StdioServerTransport());
}
