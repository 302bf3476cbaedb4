import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, type AuthInfo } from '@modelcontextprotocol/server';
import type { Request, Response } from 'express';
import { z } from 'zod';
import type { ApiContext } from '../../http/context.ts';
import type { Route } from '../../http/route.ts';
import { MCP_PATH, routesOf } from '../route.ts';
import type { SessionReader } from '../read-session.ts';
import { createMcpServer, type McpCaller } from './tools.ts';

const route = routesOf('Agent sessions');

type Respond = (request: Request, response: Response, body: unknown) => Promise<void>;

/**
 * `/mcp`: registered agents as tools of other agents, by streamable HTTP without sessions. What MCP sends is described by
 * MCP, so that this route is in no OpenAPI document.
 */
export function mcpRoute(context: ApiContext, reader: SessionReader): Route {
  const handler = createMcpHandler(({ authInfo }) => createMcpServer(context, reader, callerOf(authInfo)), {
    // The tools never change.
    maxSubscriptions: 0,
    onerror: (error) => context.log.debug({ err: error }, 'an MCP request was rejected'),
  });
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- made for Node's requests, with less exact types
  const respond = toNodeHandler(handler) as Respond;
  return route('post', MCP_PATH, {
    id: 'callMcp',
    summary: 'A message of the Model Context Protocol',
    largeBody: true,
    // One message: a batch would evade the limit of requests.
    body: { schema: z.looseObject({ jsonrpc: z.literal('2.0') }), example: { jsonrpc: '2.0', method: 'tools/list' } },
    response: { written: {} },
    isUndocumented: true,
    handler: async ({ body, caller, request, response }) => {
      const extra: McpCaller = { caller, host: request.get('host') };
      const auth: AuthInfo = { token: '', clientId: caller.subject.subjectId, scopes: [], extra: { ...extra } };
      await respond(Object.assign(request, { auth }), response, body);
    },
  });
}

function callerOf(authInfo: AuthInfo | undefined): McpCaller {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- set above
  return authInfo?.extra as unknown as McpCaller;
}
