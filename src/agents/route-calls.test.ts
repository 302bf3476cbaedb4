import { expect, test } from 'vitest';
import { NO_SUB_AGENTS } from '../../test/support/no-sub-agents.ts';
import type { AgentTool } from '../tools/toolset.ts';
import { startedAgents } from '../tools/system-tool.ts';
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

test('a tool that routes its calls gets how those before it in the message were routed', async () => {
  const start: AgentTool = {
    ...toolOf('start', false),
    run: {
      to: 'route',
      isOffered: () => true,
      route: ({ index, earlier }) =>
        startedAgents(earlier) < 2
          ? { route: { to: 'thread', threadId: `thread_${index}` } }
          : { route: { to: 'answered' }, problem: `${earlier.length} calls before` },
    },
  };
  const tools = new Map([start, toolOf('run', false)].map((tool) => [tool.name, tool]));
  const prepared = { toolset: { tools }, request: { tools: [] }, spec: {}, files: {} };
  const calls = ['start', 'run', 'start', 'start'].map((name, i) => ({
    id: `c${i}`,
    name,
    arguments: '{}',
    info: start.info,
  }));
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what these calls need
  const message = { prepared, mayBeCutOff: false } as unknown as Parameters<typeof routeCalls>[1];
  const routed = await routeCalls(calls, message, NO_SUB_AGENTS);
  expect(routed.map(({ routed: { route, problem } }) => problem ?? route.to)).toEqual([
    'thread',
    'server',
    'thread',
    '3 calls before',
  ]);
});

test.each([
  [{ approval: true }, { to: 'server', approval: true, startsTask: true, effect: 'retry' }],
  [{ approval: false }, { to: 'server', approval: false, startsTask: true, effect: 'retry' }],
  [{ approval: false, isDenied: true as const }, { to: 'answered' }],
  [{}, { to: 'thread', threadId: 'thread_0' }],
])('a call whose start of a sub-agent is decided runs later: %j', async (decision, route) => {
  const agent = { title: 't', parent: { threadId: 'main', toolCallId: 'c0' }, depth: 1, specHash: 'h' };
  const started = { thread: { ...agent, threadId: 'thread_0', hasServers: false, iterations: 1 }, input: 'Go' };
  const answer = () => ({ route: { to: 'thread' as const, threadId: 'thread_0' }, started });
  const start: AgentTool = {
    ...toolOf('start', false),
    info: { type: 'system', name: 'start' },
    run: { to: 'route', isOffered: () => true, route: answer, ...decision },
  };
  const prepared = { toolset: { tools: new Map([['start', start]]) }, request: { tools: [] }, spec: {}, files: {} };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what this call needs
  const message = { prepared, mayBeCutOff: false } as unknown as Parameters<typeof routeCalls>[1];
  const [routed] = await routeCalls(
    [{ id: 'c0', name: 'start', arguments: '{}', info: start.info }],
    message,
    NO_SUB_AGENTS,
  );
  expect(routed?.routed.route).toMatchObject(route);
  expect(routed?.routed.started).toEqual(route.to === 'thread' ? started : undefined);
});
