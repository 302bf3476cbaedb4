import { z } from 'zod';
import type { ApiContext } from '../http/context.ts';
import { disconnection } from '../http/disconnection.ts';
import { dataOf, type Route } from '../http/route.ts';
import { routesOf } from './route.ts';

const route = routesOf('Operations');

const checkedTool = z.object({
  name: z.string(),
  annotation: z
    .enum(['@read-only', '@write', '@destructive', '@unannotated'])
    .meta({ description: 'how the annotations of the tool are read' }),
  use: z.enum(['ask', 'run', 'closed']).meta({
    description:
      'whether a call asks a person or runs, for an agent that sets no approvals; `closed`: the operator allows the tool to no agent',
  }),
});

const checkedServer = z
  .object({
    name: z.string(),
    error: z.string().nullable().meta({ description: 'why it cannot be used; null if it can' }),
    seconds: z.number().meta({ description: 'until its tools were listed, or it failed' }),
    transport: z.enum(['streamable-http', 'sse', 'stdio']).nullable(),
    protocol: z.string().nullable().meta({ description: 'the version that both sides speak' }),
    tools: z.array(checkedTool),
    warnings: z
      .array(z.string())
      .meta({ description: 'which of its tools were left out, or have a schema that was repaired, and why' }),
  })
  .meta({ id: 'CheckedMcpServer' });

const example: z.output<typeof checkedServer> = {
  name: 'files',
  error: null,
  seconds: 0.512,
  transport: 'stdio',
  protocol: '2025-11-25',
  tools: [
    { name: 'read_text_file', annotation: '@read-only', use: 'run' },
    { name: 'write_file', annotation: '@destructive', use: 'ask' },
  ],
  warnings: [],
};

/** `/v1/agents/mcp/servers`: what `everturn mcp check` prints, for admins. */
export function mcpServerRoutes({ checkServers }: Pick<ApiContext, 'checkServers'>): Route[] {
  return [
    route('get', '/v1/agents/mcp/servers', {
      id: 'checkMcpServers',
      summary: 'Connect to each registered MCP server, and list its tools and which of them ask',
      description:
        'Over connections of its own, with the sign-ins of the caller: programs are started for it, and ended. Takes as long ' +
        'as the slowest server.',
      requires: 'checkMcpServers',
      response: dataOf(z.array(checkedServer), [example]),
      handler: async ({ caller, response }) => ({
        data: await checkServers(caller.subject.subjectId, disconnection(response)),
      }),
    }),
  ];
}
