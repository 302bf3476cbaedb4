import { Server as OlderServer } from '@modelcontextprotocol/sdk/server/index.js';
import { CallToolRequestSchema, ElicitResultSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { inputRequired, Server } from '@modelcontextprotocol/server';
import { QUESTION, type McpBehaviour } from './mcp-behaviour.ts';

const INFO = { name: 'test', version: '1' };
const CAPABILITIES = { capabilities: { tools: { listChanged: true } } };

/** A server of 2026-07-28, built with the current SDK. */
export function newerServer(behaviour: McpBehaviour): Server {
  const server = new Server(INFO, CAPABILITIES);
  server.setRequestHandler('tools/list', ({ params }) => behaviour.list(params?.cursor));
  server.setRequestHandler('tools/call', ({ params }, { mcpReq, http }) => {
    const { inputResponses } = mcpReq;
    // It asks by its result, and gets the answer with the next request.
    if (params.name === 'ask' && !inputResponses) {
      return inputRequired({ inputRequests: { name: inputRequired.elicit(QUESTION) } });
    }
    return behaviour.call(params.name, params.arguments ?? {}, {
      meta: mcpReq._meta ?? {},
      headers: Object.fromEntries(http?.req?.headers ?? []),
      signal: mcpReq.signal,
      notify: (method, notified) => mcpReq.notify({ method, params: notified }),
      ask: () => Promise.resolve(inputResponses?.['name']),
    });
  });
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
      ask: () => extra.sendRequest({ method: 'elicitation/create', params: QUESTION }, ElicitResultSchema),
    })),
  }));
  return server;
}
