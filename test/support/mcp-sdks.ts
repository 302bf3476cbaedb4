import { Server as OlderServer } from '@modelcontextprotocol/sdk/server/index.js';
import { CallToolRequestSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { Server } from '@modelcontextprotocol/server';
import type { McpBehaviour } from './mcp-behaviour.ts';

const INFO = { name: 'test', version: '1' };
const CAPABILITIES = { capabilities: { tools: { listChanged: true } } };

/** A server of 2026-07-28, built with the current SDK. */
export function newerServer(behaviour: McpBehaviour): Server {
  const server = new Server(INFO, CAPABILITIES);
  server.setRequestHandler('tools/list', ({ params }) => behaviour.list(params?.cursor));
  server.setRequestHandler('tools/call', ({ params }, { mcpReq, http }) =>
    behaviour.call(params.name, params.arguments ?? {}, {
      meta: mcpReq._meta ?? {},
      headers: Object.fromEntries(http?.req?.headers ?? []),
      signal: mcpReq.signal,
      notify: (method, notified) => mcpReq.notify({ method, params: notified }),
    }),
  );
  return server;
}

/** A server of 2025-11-25, built with the first SDK. */
export function olderServer(behaviour: McpBehaviour): OlderServer {
  const server = new OlderServer(INFO, CAPABILITIES);
  server.setRequestHandler(ListToolsRequestSchema, ({ params }) => ({ ...behaviour.list(params?.cursor) }));
  server.setRequestHandler(CallToolRequestSchema, async ({ params: { name, arguments: args = {}, _meta } }, extra) => ({
    ...(await behaviour.call(name, args, {
      meta: _meta ?? {},
      headers: Object.fromEntries(
        Object.entries(extra.requestInfo?.headers ?? {}).map(([name, value]) => [name, String(value)]),
      ),
      signal: extra.signal,
      notify: (method, params) => extra.sendNotification({ method, params }),
    })),
  }));
  return server;
}
