import { pino } from 'pino';
import { expect, onTestFinished, test } from 'vitest';
import { TestMcpServer } from '../../test/support/mcp-server.ts';
import type { ToolScope } from '../core/history.ts';
import { McpPool } from '../mcp/pool.ts';
import { McpRegistry } from '../mcp/registry.ts';
import { Metrics } from '../telemetry/metrics.ts';
import { McpTools } from './mcp-tools.ts';
import { SystemTools } from './system-tools.ts';
import type { RegisteredServer } from '../mcp/registry-file.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import { ToolsetLoader } from './toolset-loader.ts';

const log = pino({ level: 'silent' });
const unaborted = new AbortController().signal;

const warningsAbout = (server: string) => Promise.resolve([`a warning about ${server}`]);
const runSecrets = { get: () => Promise.resolve(undefined) };

/** An agent that enables all tools and requires no approvals. */
const SPEC: AgentSpec = {
  model: { name: 'm' },
  mcp_servers: [{ type: 'truefoundry-mcp-registry', name: 'crm', require_approval_for_tools: [] }],
};

const BY_ADMIN = scopeOf(null);
const BY_USER = scopeOf(['user']);

function scopeOf(draftRoles: string[] | null, subjectId = 'bob'): ToolScope {
  return { sessionId: 'ses_1', owner: { subjectId, draftRoles } };
}

const kindsOf = (registry: McpRegistry, pool: McpPool) => ({
  system: new SystemTools([], {}),
  mcp: new McpTools({ registry, pool, runSecrets, warningsAbout, metrics: new Metrics(), log }),
});

async function start(policy: Partial<RegisteredServer> = {}) {
  const server = await TestMcpServer.start({
    tools: [
      { name: 'find', annotations: { readOnlyHint: true } },
      { name: 'wipe', annotations: { destructiveHint: true } },
      { name: 'debug' },
    ],
  });
  const pool = new McpPool({ allowPrivateUrls: () => false });
  onTestFinished(async () => {
    await pool.close();
    await server.stop();
  });
  const registry = new McpRegistry();
  registry.add('crm', { ...policy, url: server.url });
  const kinds = kindsOf(registry, pool);
  const toolsets = new ToolsetLoader(kinds);
  /** The names of the tools, in capitals if they need approval; or why there are none. */
  const offered = async (scope: ToolScope): Promise<string> => {
    const { tools, unavailable } = await toolsets.load(SPEC, scope, unaborted);
    const names = [...tools.values()].flatMap(({ name, run }) =>
      run.to !== 'server' ? [] : [run.approval ? name.toUpperCase() : name],
    );
    return unavailable[0]?.reason ?? names.join(' ');
  };
  const call = (scope: ToolScope, name: string) => {
    const info = { type: 'mcp' as const, serverId: 'crm', serverName: 'crm', name };
    const route = { to: 'server' as const, effect: 'once' as const, approval: false, callHash: '' };
    return kinds.mcp.run(
      { id: 'call_0', name, arguments: '', info, route },
      {
        spec: SPEC,
        scope,
        operationId: 'turn_0/call_0',
        mayRepeat: false,
        timeoutMs: 10_000,
        signal: unaborted,
        loadToolset: () => toolsets.load(SPEC, scope, unaborted),
      },
    );
  };
  return { server, toolsets, offered, call };
}

const CLOSED = 'is not open to the drafts of this user';

test.each<[Partial<RegisteredServer>, ToolScope, string]>([
  [{}, BY_ADMIN, 'find wipe debug'],
  [{}, scopeOf(['admin']), 'find wipe debug'],
  [{}, BY_USER, `it ${CLOSED}`],
  [{ drafts: ['approver', 'subject:ann'] }, BY_USER, `it ${CLOSED}`],
  // A server that is opened to users still needs approvals by default.
  [{ drafts: ['user'] }, BY_USER, 'find WIPE DEBUG'],
  [{ drafts: ['subject:bob'] }, BY_USER, 'find WIPE DEBUG'],
  [{ drafts: ['user'], require_approval_for_tools: [] }, BY_USER, 'find wipe debug'],
  [{ require_approval_for_tools: ['@unannotated'] }, BY_ADMIN, 'find wipe DEBUG'],
  [{ tools: ['@read-only', 'debug'] }, BY_ADMIN, 'find debug'],
])("the operator's policy (%j) applies to an agent (%j): %s", async (policy, scope, expected) => {
  const { server, offered } = await start(policy);
  expect(await offered(scope)).toBe(expected);
  // No request is sent to a closed server.
  if (expected.endsWith(CLOSED)) expect(server.received).toEqual([]);
});

test('the timeout of a server limits its calls below the time-out of all calls', async () => {
  const { server, call } = await start({ timeout: 0.05 });
  server.faults.set('tools/call', 'stall');
  expect(await call(BY_ADMIN, 'find')).toEqual({
    status: 'unknown',
    message: 'MCP server "crm" did not answer within 0.05 s',
  });
});

test('an inline server is open to its agent, regardless of the author', async () => {
  const { server } = await start();
  const pool = new McpPool({ allowPrivateUrls: () => true });
  onTestFinished(() => pool.close());
  const toolsets = new ToolsetLoader(kindsOf(new McpRegistry(), pool));
  const spec = { ...SPEC, mcp_servers: [{ type: 'inline' as const, name: 'crm', url: server.url }] };
  const { tools, servers } = await toolsets.load(spec, BY_USER, unaborted);
  expect(servers[0]?.warnings).toContainEqual(expect.stringMatching(/run without an approval: debug;/));
  expect([...tools.keys()]).toEqual(expect.arrayContaining(['find', 'wipe', 'debug']));
});

test('the policy is checked again when a call runs', async () => {
  const closed = await start();
  await expect(closed.call(BY_USER, 'find')).rejects.toThrow(CLOSED);
  expect(closed.server.received).toEqual([]);
  const narrowed = await start({ tools: ['@read-only'] });
  await expect(narrowed.call(BY_ADMIN, 'debug')).rejects.toThrow('does not allow this tool');
  expect(await narrowed.call(BY_ADMIN, 'find')).toMatchObject({ status: 'result', isError: false });
});

test('notes on a server for the author of an agent are with the server', async () => {
  const { toolsets } = await start();
  const spec: AgentSpec = {
    ...SPEC,
    mcp_servers: [{ type: 'truefoundry-mcp-registry', name: 'crm', enable_tools: ['@all', 'fnd'] }],
    config: { decision_policies: [{ match: { server: 'crm', tool: 'wpe' }, decision: 'ask' }] },
  };
  const { servers } = await toolsets.load(spec, BY_ADMIN, unaborted);
  expect(servers.map(({ warnings }) => warnings)).toEqual([
    [
      'enable_tools names fnd, which is no tool of the server',
      'config.decision_policies.0.match.tool: wpe fits no tool of the server',
      'a warning about crm',
    ],
  ]);
});
