import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { redact } from '../lib/redact.ts';
import { loadMcpRegistry, McpRegistry } from './registry.ts';

const ENV = { CRM_SECRET: 's3cret', CRM_ID: 'crm', EMPTY: '' };

async function fileOf(content: string): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-registry-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const file = path.join(folder, 'servers.json');
  await writeFile(file, content);
  return file;
}

test('servers of the file are found by name, and trusted', async () => {
  const weather = { url: 'http://10.0.0.1/mcp', headers: { authorization: 'Bearer x' }, idempotent_tools: ['set'] };
  const file = await fileOf(JSON.stringify({ servers: { weather, plain: { url: 'https://plain.example/' } } }));
  const registry = await loadMcpRegistry(file);
  expect(registry.resolve({ type: 'truefoundry-mcp-registry', name: 'weather' })).toEqual({
    id: 'weather',
    name: 'weather',
    url: 'http://10.0.0.1/mcp',
    headers: { authorization: 'Bearer x' },
    trusted: true,
    idempotentTools: ['set'],
    isolation: 'session',
    ordered: false,
  });
  expect(registry.resolve({ type: 'truefoundry-mcp-registry', name: 'plain' })).toMatchObject({
    headers: {},
    idempotentTools: [],
  });
  expect(registry.resolve({ type: 'truefoundry-mcp-registry', name: 'other' })).toBeUndefined();
});

test('a server can be a program, configured by the file', async () => {
  const tools = { command: 'uvx', args: ['some-server', '--flag'], env: { TOKEN: 'x' }, cwd: '/srv' };
  const file = await fileOf(JSON.stringify({ servers: { tools, plain: { command: 'server' } } }));
  const registry = await loadMcpRegistry(file);
  expect(registry.resolve({ type: 'truefoundry-mcp-registry', name: 'tools' })).toEqual({
    id: 'tools',
    name: 'tools',
    idleMs: 86_400_000,
    idempotentTools: [],
    isolation: 'subject',
    ordered: true,
    ...tools,
  });
  const plain = {
    id: 'plain',
    name: 'plain',
    idleMs: 86_400_000,
    idempotentTools: [],
    isolation: 'subject',
    ordered: true,
    command: 'server',
    args: [],
    env: {},
  };
  expect(registry.resolve({ type: 'truefoundry-mcp-registry', name: 'plain' })).toEqual(plain);
});

test('values may come from the environment', async () => {
  const auth = {
    type: 'client_credentials',
    token_url: 'https://login.example/token',
    client_id: '${CRM_ID}',
    client_secret: '${CRM_SECRET}',
    scope: 'a b',
  };
  const crm = { url: 'https://crm.example/', headers: { 'x-key': 'k-${CRM_SECRET}-${CRM_ID}' }, auth };
  const file = await fileOf(JSON.stringify({ servers: { crm, tools: { command: 'x', args: ['${CRM_ID}'] } } }));
  const registry = await loadMcpRegistry(file, ENV);
  expect(registry.resolve({ type: 'truefoundry-mcp-registry', name: 'crm' })).toMatchObject({
    headers: { 'x-key': 'k-s3cret-crm' },
    auth: { ...auth, client_id: 'crm', client_secret: 's3cret' },
  });
  expect(registry.resolve({ type: 'truefoundry-mcp-registry', name: 'tools' })).toMatchObject({ args: ['crm'] });
});

test('values of variables and of headers are registered as secrets', async () => {
  const env = { STRIPE: 'sk-of-stripe', PAT: 'pat-of-github', PATH_KEY: 'key-in-the-path' };
  const pay = {
    url: 'https://pay.example/${PATH_KEY}/mcp',
    headers: { 'Ocp-Apim-Subscription-Key': 'of-the-gateway' },
  };
  const code = { command: 'x', args: ['--key', '${STRIPE}'], env: { GITHUB: '${PAT}', LITERAL_KEY: 'key-as-it-is' } };
  await loadMcpRegistry(await fileOf(JSON.stringify({ servers: { pay, code } })), env);
  for (const secret of [...Object.values(env), 'of-the-gateway', 'key-as-it-is']) {
    expect(redact(`a ${secret} b`)).toBe('a [hidden] b');
  }
});

test('a server can be registered at run time', async () => {
  const registry = await loadMcpRegistry(undefined);
  const spec = { type: 'truefoundry-mcp-registry', name: 'demo' } as const;
  expect(registry.resolve(spec)).toBeUndefined();
  registry.add('demo', { url: 'http://127.0.0.1:1234/mcp' });
  expect(registry.resolve(spec)).toMatchObject({ url: 'http://127.0.0.1:1234/mcp', trusted: true });
});

test('an inline server has its own URL, is not trusted, and has an id that does not reveal the URL', () => {
  const registry = new McpRegistry();
  registry.add('weather', { url: 'http://10.0.0.1/' });
  const url = 'https://weather.example/mcp?key=secret';
  const endpoint = registry.resolve({ type: 'inline', name: 'weather', url });
  expect(endpoint).toEqual({
    id: expect.stringMatching(/^inline-[0-9a-f]{16}$/),
    name: 'weather',
    url,
    headers: {},
    trusted: false,
    idempotentTools: [],
    isolation: 'session',
  });
  expect(registry.resolve({ type: 'inline', name: 'other', url })?.id).toBe(endpoint?.id);
});

test.each([
  ['{', 'is not JSON (line 1 column 2)'],
  ['{"servers": {"a": {"url": s3cret}}}', 'is not JSON'],
  ['[]', 'the file: '],
  ['{}', 'servers: must be an object of servers by name'],
  ['{"servers": {}, "mcpServers": {}}', 'mcpServers: stands beside servers: put all servers into one of them'],
  ['{"mcpServers": {"a": {"command": "x", "arg": []}}}', 'mcpServers.a: unknown key "arg": do you mean "args"?'],
  ['{"mcpServers": {"a": {"command": "x", "disabled": "true"}}}', 'mcpServers.a.disabled: must be true or false'],
  ['{"mcpServers": {"a": {"command": "x", "timeout": "60"}}}', 'mcpServers.a.timeout: must be a positive number'],
  [
    '{"servers": {"a": {"command": "x", "start_timeout_seconds": 0}}}',
    'servers.a.start_timeout_seconds: must be a number of seconds, from 1 to 2073600 (24 days)',
  ],
  [
    '{"servers": {"a": {"command": "x", "idle_seconds": 9e9}}}',
    'servers.a.idle_seconds: must be a number of seconds, from 1 to 2073600 (24 days)',
  ],
  ['{"servers": {"a": {"url": "https://x.example/", "start_timeout_seconds": 9}}}', 'start_timeout_seconds'],
  [
    '{"servers": {"a": {"command": "x", "protocol": "2025-11-26"}}}',
    'servers.a.protocol: must be a version of MCP: 2026-07-28, 2025-11-25, 2025-06-18',
  ],
  ['{"mcpServers": {"a": {"command": "x", "timeout": 0}}}', 'mcpServers.a.timeout: must be a positive number'],
  ['{"mcpServers": {"a": {"command": "x", "type": "pipe"}}}', 'mcpServers.a.type: must be stdio for a command'],
  ['{"mcpServers": {"a": {"command": "x", "type": "sse"}}}', 'mcpServers.a.type: is "sse", which needs a url'],
  [
    '{"mcpServers": {"a": {"url": "http://x/", "transport": "stdio"}}}',
    'mcpServers.a.transport: is "stdio", which needs a command',
  ],
  ['{"servers": {"a": {}}}', 'servers.a: needs a url, or a command to start'],
  ['{"servers": {"a": {"url": "ftp://x/"}}}', 'servers.a.url: must be an http or https URL'],
  ['{"servers": {"a": {"url": "nonsense"}}}', 'servers.a.url: must be an http or https URL'],
  ['{"servers": {"a": {"url": "http://u:p@x/"}}}', 'servers.a.url: must not contain a user name or password'],
  [
    '{"servers": {"a": {"url": "http://x/", "headers": {"a b": "c"}}}}',
    'servers.a.headers.a b: is not the name of an HTTP header',
  ],
  ['{"servers": {"a": {"url": "http://x/", "headers": {"a": 1}}}}', 'servers.a.headers.a: must be a string'],
  ['{"servers": {"a": {"url": "http://x/", "headers": {"a": "b\\nc"}}}}', 'must be the value of an HTTP header'],
  ['{"servers": {"a": {"url": "http://x/", "idempotent_tools": "@all"}}}', 'must be a list of tool names, or ["@all"]'],
  ['{"servers": {"a": {"url": "http://x/", "header": {}}}}', 'servers.a: unknown key "header": do you mean "headers"?'],
  ['{"servers": {}, "server": {}}', 'the file: unknown key "server": do you mean "servers"?'],
  [
    '{"servers": {"a": {"url": "http://x/", "auth": {"type": "authorization_code", "clientid": "x"}}}}',
    'servers.a.auth: unknown key "clientid": do you mean "client_id"?',
  ],
  [
    '{"servers": {"a": {"url": "http://x/", "isolation": "none"}}}',
    'servers.a.isolation: must be session, subject or shared',
  ],
  ['{"servers": {"a": {"command": "x", "ordered": "no"}}}', 'servers.a.ordered: must be true or false'],
  [
    '{"servers": {"a": {"url": "http://x/", "drafts": ["users"]}}}',
    'servers.a.drafts.0: must be a list of roles (admin, user, approver) and of subjects ("subject:<id>")',
  ],
  [
    '{"servers": {"a": {"command": "x", "tools": ["@write"]}}}',
    'servers.a.tools.0: must be a list of tool names and of @all, @read-only',
  ],
  [
    '{"servers": {"a": {"command": "x", "require_approval_for_tools": "@unannotated"}}}',
    'servers.a.require_approval_for_tools: must be a list of tool names and of @all, @write, @destructive, @unannotated',
  ],
  ['{"servers": {"a": 1}}', 'servers.a: must be an object'],
  [
    '{"servers": {"a": {"url": "http://x/", "command": "x"}}}',
    'servers.a: has a url and a command: give it one of them',
  ],
  ['{"servers": {"a": {"command": ""}}}', 'servers.a.command: must be the name or path of a program'],
  ['{"servers": {"a": {"command": "x", "args": "y"}}}', 'servers.a.args: must be a list of strings'],
  ['{"servers": {"a": {"command": "x", "args": [1]}}}', 'servers.a.args.0: must be a string'],
  ['{"servers": {"a": {"command": "x", "env": {"A": 1}}}}', 'servers.a.env.A: must be a string'],
  ['{"servers": {"a": {"command": "x", "headers": {}}}}', 'servers.a: unknown key "headers"'],
  [
    '{"servers": {"a": {"command": "x", "env": {"B": "${NOT_SET}"}, "args": ["${EMPTY}"]}}}',
    'servers.a.env.B: NOT_SET is not set\nservers.a.args.0: EMPTY is not set',
  ],
  [
    '{"servers": {"a": {"url": "http://x/", "auth": {"type": "basic"}}}}',
    'servers.a.auth.type: must be client_credentials',
  ],
  [
    '{"servers": {"a": {"url": "http://x/", "auth": {"type": "client_credentials", "client_id": "x"}}}}',
    'servers.a.auth.client_secret: must be a string',
  ],
  [
    '{"servers": {"a": {"url": "http://x/", "auth": {"type": "client_credentials", "client_id": "x", "client_secret": "${CRM_SECRET}", "token_url": "http://x/"}}}}',
    'servers.a.auth.token_url: must be an https URL',
  ],
  [
    '{"servers": {"a": {"url": "http://x/", "auth": {"type": "client_credentials", "client_id": "x", "client_secret": "${CRM_SECRET}"}}}}',
    'servers.a.auth: needs a token_url, or the issuer',
  ],
  [
    '{"servers": {"a": {"url": "http://x/", "auth": {"type": "client_credentials", "client_id": "x", "client_secret": "${CRM_SECRET}", "issuer": "http://x/"}}}}',
    'servers.a.auth.issuer: must be an https URL',
  ],
  [
    '{"servers": {"a": {"url": "http://x/", "auth": {"type": "client_credentials", "client_id": "x", "client_secret": "${CRM_SECRET}", "issuer": "https://x/", "token_url": "https://x/t"}}}}',
    'servers.a.auth: has a token_url and an issuer: give it one of them',
  ],
])('a file of %s is rejected, and the error names the file and the path', async (content, message) => {
  const file = await fileOf(content);
  const error: unknown = await loadMcpRegistry(file, ENV).catch((reason: unknown) => reason);
  expect(String(error)).toContain(`EVERTURN_MCP_SERVERS: ${file}: `);
  expect(String(error)).toContain(message);
  expect(String(error)).not.toContain('s3cret');
});

test('a file that does not exist is rejected', async () => {
  await expect(loadMcpRegistry('/nowhere/servers.json')).rejects.toThrow(/\/nowhere\/servers\.json: cannot be read/);
});

test('a server may provide environments, of kinds that no other one provides', async () => {
  const url = 'https://browser.example/mcp';
  const browser = { url, environments: ['web', 'workstation'] };
  const program = { command: 'desktop', isolation: 'session', environments: ['desktop'] };
  const registry = await loadMcpRegistry(await fileOf(JSON.stringify({ servers: { browser, program } })));
  expect(['web', 'workstation', 'desktop', 'android'].map((kind) => registry.environmentServer(kind as 'web'))).toEqual(
    ['browser', 'browser', 'program', undefined],
  );
  const problemOf = async (servers: object) =>
    loadMcpRegistry(await fileOf(JSON.stringify({ servers }))).then(
      () => undefined,
      (error: unknown) => String(error),
    );
  expect(await problemOf({ browser, other: { url, environments: ['web'] } })).toMatch(
    /servers\.other\.environments: browser has the environments of the kind web already/,
  );
  expect(await problemOf({ browser: { url, environments: ['moon'] } })).toMatch(/must be a list of kinds/);
  expect(await problemOf({ program: { command: 'x', environments: ['web'] } })).toMatch(/set "isolation" to "session"/);
});

test.each(['servers', 'mcpServers'])('the block of a README is accepted as it is, under %s', async (key) => {
  const files = { command: 'npx', args: ['-y', 'some-server', '/srv'], env: { TOKEN: '${CRM_SECRET}' } };
  const types = { a: 'stdio', b: 'http', c: 'streamable-http', d: 'streamableHttp', e: 'sse' };
  const typed = Object.entries(types).map(([name, type]) => [
    name,
    type === 'stdio' ? { type, command: 'x' } : { type, transport: type, url: 'https://x.example/' },
  ]);
  const file = await fileOf(JSON.stringify({ [key]: { files, ...Object.fromEntries(typed) } }));
  const registry = await loadMcpRegistry(file, ENV);
  expect(registry.names).toEqual(['files', ...Object.keys(types)]);
  expect(registry.warnings).toEqual([]);
  expect(registry.resolve({ type: 'truefoundry-mcp-registry', name: 'files' })).toMatchObject({
    ...files,
    env: { TOKEN: 's3cret' },
  });
});

test('the times of a server are in seconds, and programs are idle for a day by default', async () => {
  const url = 'https://x.example/';
  const servers = {
    program: { command: 'x', start_timeout_seconds: 600, idle_seconds: 60, protocol: '2025-11-25' },
    plain: { command: 'x' },
    http: { url, idle_seconds: 3_600 },
    short: { url },
  };
  const registry = await loadMcpRegistry(await fileOf(JSON.stringify({ servers })));
  const [program, ...others] = registry.names.map((name) =>
    registry.resolve({ type: 'truefoundry-mcp-registry', name }),
  );
  expect(program).toMatchObject({ startTimeoutMs: 600_000, idleMs: 60_000, protocol: '2025-11-25' });
  expect(others.map((other) => other?.idleMs)).toEqual([86_400_000, 3_600_000, undefined]);
  expect(registry.programs.map(({ name }) => name)).toEqual(['program', 'plain']);
});

test('the timeout of a server is in seconds below 1000, and in milliseconds from there on', async () => {
  const of = (timeout: number) => ({ command: 'x', timeout });
  const servers = { cline: of(60), gemini: of(999), other: of(1_000), long: of(90_000) };
  const registry = await loadMcpRegistry(await fileOf(JSON.stringify({ mcpServers: servers })));
  const found = registry.names.map((name) => registry.resolve({ type: 'truefoundry-mcp-registry', name })?.timeoutMs);
  expect(found).toEqual([60_000, 999_000, 1_000, 90_000]);
});

test.each([{ disabled: true }, { enabled: false }])(
  'a server with %j is not registered, its other fields are not read, and a warning says so',
  async (how) => {
    const servers = { off: { ...how, command: 1, env: { KEY: '${NOT_SET}' } }, on: { command: 'x', disabled: false } };
    const file = await fileOf(JSON.stringify({ mcpServers: servers }));
    const registry = await loadMcpRegistry(file, {});
    expect([registry.names, registry.disabled]).toEqual([['on'], ['off']]);
    expect(registry.resolve({ type: 'truefoundry-mcp-registry', name: 'off' })).toBeUndefined();
    expect(registry.warnings).toEqual([
      `EVERTURN_MCP_SERVERS: ${file}: mcpServers.off is disabled: no agent can use it`,
    ]);
  },
);

test('fields that other MCP hosts write have no effect, as warnings say', async () => {
  const crm = { url: 'https://crm.example/', autoApprove: ['find'], alwaysAllow: [], description: 'Customers' };
  const tools = { command: 'server', envFile: '.env', disabledTools: ['drop'], icon: 'x', tools: ['find'] };
  const file = await fileOf(JSON.stringify({ inputs: [], mcpServers: { crm, tools } }));
  const registry = await loadMcpRegistry(file);
  expect(registry.warnings).toEqual(
    [
      'mcpServers.crm.autoApprove has no effect: require_approval_for_tools says which tools need an approval',
      'mcpServers.crm.alwaysAllow has no effect: require_approval_for_tools says which tools need an approval',
      'mcpServers.crm.description has no effect: it is for other programs',
      'mcpServers.tools.envFile has no effect: env has the variables of the program',
      'mcpServers.tools.disabledTools has no effect: tools says which tools agents may use',
      'mcpServers.tools.icon has no effect: it is for other programs',
      'inputs has no effect: write ${NAME} for the value of a variable',
    ].map((warning) => `EVERTURN_MCP_SERVERS: ${file}: ${warning}`),
  );
  expect(registry.resolve({ type: 'truefoundry-mcp-registry', name: 'crm' })).toMatchObject({ url: crm.url });
  expect((await loadMcpRegistry(await fileOf('{"servers": {"a": {"command": "x"}}}'))).warnings).toEqual([]);
});
