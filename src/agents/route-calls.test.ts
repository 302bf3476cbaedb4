import { expect, test } from 'vitest';
import { NO_SUB_AGENTS } from '../../test/support/no-sub-agents.ts';
import type { AgentTool } from '../tools/toolset.ts';
import { routeCalls } from './route-calls.ts';

const toolOf = (name: string, approval: boolean): AgentTool => ({
  name,
  description: '',
  parameters: {},
  info: { type: 'mcp', serverId: 's', serverName: 's', name },
  run: { to: 'server', effect: 'once', approval, order: { server: 's' } },
});

test('calls that would wait behind one that a person decides are bounded like that one', async () => {
  const tools = new Map([toolOf('ask', true), toolOf('run', false)].map((tool) => [tool.name, tool]));
  const prepared = { toolset: { tools, servers: [], unavailable: [] }, request: { tools: [] }, spec: {} };
  const names = ['run', 'run', 'ask', 'run', 'run', 'ask'];
  const calls = names.map((name, i) => ({ id: `c${i}`, name, arguments: '{}', info: toolOf(name, true).info }));
  const handling = { ...NO_SUB_AGENTS, maxWaiting: 2 };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what these calls need
  const message = { prepared, mayBeCutOff: false } as unknown as Parameters<typeof routeCalls>[1];
  const routed = await routeCalls(calls, message, handling);
  expect(routed.map(({ routed: { route } }) => route.to)).toEqual([
    'server',
    'server',
    'server',
    'server',
    'answered',
    'answered',
  ]);
  expect(routed[3]?.routed.route).toMatchObject({ order: { server: 's' } });
});
