import { expect, test } from 'vitest';
import { loadConfig } from '../../config.ts';
import { agentSpec } from '../../spec/agent-spec.ts';
import { codeProblem } from './agent-code.ts';
import type { KernelAvailability } from './availability.ts';

const READY: KernelAvailability = { state: 'ready', limitsNetwork: true };

function problemOf(rest: object, availability = READY, env: Record<string, string> = {}) {
  const spec = agentSpec.parse({ model: { name: 'm' }, ...rest });
  const { kernels, embeddingModel } = loadConfig(env);
  return codeProblem(spec, { ...kernels, availability, hasEmbeddings: embeddingModel !== undefined });
}

const sandbox = (fields: object) => ({ config: { sandbox: fields } });
const file = (path: string, base64 = 'aGk=') => ({ path, data: `data:text/plain;base64,${base64}` });

test('an agent without code actions has no problem on a server without kernels, and others get the reason', () => {
  const none: KernelAvailability = { state: 'failed', reason: 'python3 is not on PATH' };
  for (const rest of [
    {},
    { code_actions: { enabled: false } },
    sandbox({ enabled: false, network_policy: { a: 1 } }),
  ]) {
    expect(problemOf(rest, none)).toBeUndefined();
  }
  const problem = {
    code: 'feature_not_available',
    message: 'code actions are not available on this server: python3 is not on PATH',
  };
  expect(problemOf({ code_actions: {} }, none)).toEqual({ ...problem, param: 'code_actions' });
  expect(problemOf(sandbox({ enabled: true }), none)).toEqual({ ...problem, param: 'config.sandbox' });
});

test('an agent is accepted once there are kernels, and while their environment is being built', () => {
  const rest = { code_actions: { workspace: { files: [file('a'), file('b')] }, images: 'link' } };
  for (const availability of [READY, { state: 'building' as const }]) {
    expect(problemOf(rest, availability)).toBeUndefined();
    expect(problemOf(sandbox({ enabled: true, network_policy: { allow: null } }), availability)).toBeUndefined();
  }
});

test.each([
  [{ code_actions: {}, ...sandbox({ enabled: false }) }, 'invalid_agent', 'config.sandbox.enabled'],
  [{ code_actions: { enabled: false }, ...sandbox({ enabled: true }) }, 'invalid_agent', 'config.sandbox.enabled'],
  [
    { code_actions: { workspace: { files: [file('a'), file('../a')] } } },
    'invalid_agent',
    'code_actions.workspace.files.1.path',
  ],
  [
    sandbox({ enabled: true, network_policy: { auth_inject: [] } }),
    'feature_not_available',
    'config.sandbox.network_policy',
  ],
  [{ code_actions: { tool_search: 'hybrid' } }, 'feature_not_available', 'code_actions.tool_search'],
  [{ code_actions: { kernel: { memory_mb: 4_097 } } }, 'invalid_agent', 'code_actions.kernel.memory_mb'],
  [{ code_actions: { kernel: { timeout_seconds: 3_601 } } }, 'invalid_agent', 'code_actions.kernel.timeout_seconds'],
  [
    { code_actions: { workspace: { files: [file('a'), file('./a')] } } },
    'invalid_agent',
    'code_actions.workspace.files.1',
  ],
  [
    { code_actions: { workspace: { files: [file('a/b'), file('c'), file('a')] } } },
    'invalid_agent',
    'code_actions.workspace.files.2',
  ],
  [
    { code_actions: { workspace: { instructions_file: '../AGENTS.md' } } },
    'invalid_agent',
    'code_actions.workspace.instructions_file',
  ],
  [
    { code_actions: { workspace: { files: [file('a')], max_bytes: 1 } } },
    'invalid_agent',
    'code_actions.workspace.files',
  ],
  [
    { code_actions: { workspace: { files: [file('a'), file('b')], max_files: 1 } } },
    'invalid_agent',
    'code_actions.workspace.files',
  ],
])('%j is a problem', (rest, code, param) => {
  expect(problemOf(rest)).toMatchObject({ code, param });
});

test('tools are searched by meaning on a server with a model for embeddings', () => {
  const hybrid = { code_actions: { tool_search: 'hybrid' } };
  const message = expect.stringContaining('EVERTURN_EMBEDDING_MODEL') as string;
  expect(problemOf(hybrid)).toMatchObject({ message });
  expect(problemOf(hybrid, READY, { EVERTURN_EMBEDDING_MODEL: 'm' })).toBeUndefined();
});

test('contradictions and limits of a block that is off are none', () => {
  expect(problemOf({ code_actions: { enabled: false }, ...sandbox({ enabled: false }) })).toBeUndefined();
  expect(problemOf({ code_actions: { enabled: false, kernel: { cpus: 1_000 } } })).toBeUndefined();
});

test.each([
  ['timeout_seconds', 'EVERTURN_KERNEL_TIMEOUT_SECONDS', '100'],
  ['idle_seconds', 'EVERTURN_KERNEL_IDLE_SECONDS', '100'],
  ['suspend_seconds', 'EVERTURN_KERNEL_SUSPEND_SECONDS', '100'],
  ['memory_mb', 'EVERTURN_KERNEL_MEMORY_MB', '256'],
  ['cpus', 'EVERTURN_KERNEL_CPUS', '0.5'],
  ['processes', 'EVERTURN_KERNEL_PROCESSES', '20'],
])(
  '%s may be at most what the operator sets, which an agent that leaves it open need not know',
  (limit, name, value) => {
    const env = { [name]: value };
    const asking = (amount: number) => problemOf({ code_actions: { kernel: { [limit]: amount } } }, READY, env);
    expect(asking(Number(value))).toBeUndefined();
    expect(asking(Number(value) + 1)).toMatchObject({
      code: 'invalid_agent',
      message: expect.stringContaining(value) as string,
      param: `code_actions.kernel.${limit}`,
    });
    expect(problemOf({ code_actions: {} }, READY, env)).toBeUndefined();
  },
);

test('variables are those that the operator lists, and not the own ones of the sandbox', () => {
  const listed = { EVERTURN_KERNEL_ENV: 'TOKEN, OTHER_1' };
  const asking = (kernelEnv: object, env: Record<string, string> = listed) =>
    problemOf({ code_actions: { kernel: { env: kernelEnv } } }, READY, env);
  const param = 'code_actions.kernel.env.A';
  expect(asking({ A: 'Bearer ${TOKEN}${OTHER_1}', B: '$HOME' })).toBeUndefined();
  expect(asking({ A: '${TOKEN}' }, {})).toMatchObject({ code: 'invalid_agent', param });
  expect(asking({ A: '${TOKEN} ${EVERTURN_API_KEYS}' })).toMatchObject({
    message: expect.stringContaining('EVERTURN_API_KEYS') as string,
    param,
  });
  expect(asking({ HOME: '/' })).toMatchObject({ param: 'code_actions.kernel.env.HOME' });
  expect(asking({ A: 'a\0b' })).toMatchObject({ param });
});

test('the hosts of an agent are within those of the operator, on hosts whose walls keep code to them', () => {
  const asking = (allow: string[], network: string | undefined, availability = READY) =>
    problemOf({ code_actions: { network: { allow } } }, availability, { EVERTURN_KERNEL_NETWORK: network ?? '' });
  const param = 'code_actions.network.allow';
  expect(asking(['PyPI.org', '*.a.example.com'], 'pypi.org, *.Example.com')).toBeUndefined();
  expect(asking(['pypi.org'], 'any')).toBeUndefined();
  expect(asking([], undefined)).toBeUndefined();
  expect(asking(['pypi.org', 'example.com'], 'pypi.org,*.example.com')).toMatchObject({
    code: 'invalid_agent',
    message: expect.stringContaining('example.com is not within') as string,
    param: `${param}.1`,
  });
  for (const none of [undefined, 'none']) {
    const message = expect.stringContaining('EVERTURN_KERNEL_NETWORK') as string;
    expect(asking(['pypi.org'], none)).toMatchObject({ code: 'feature_not_available', message, param });
  }
  const confined: KernelAvailability = { state: 'ready', limitsNetwork: false };
  const message = expect.stringContaining('bubblewrap') as string;
  expect(asking(['pypi.org'], 'any', confined)).toMatchObject({ code: 'feature_not_available', message, param });
  expect(asking([], 'any', confined)).toBeUndefined();
});

test('a rule that can never match, or is not what it looks like, is a problem', () => {
  const problemWith = (rule: object) => problemOf({ code_actions: { permissions: [{ preset: 'read_only' }, rule] } });
  for (const path of ['a//b', './a', 'a/../b', '/workspace/a', '/workspace', '~/a', 'a**b', '/']) {
    const problem = { code: 'invalid_agent', param: 'code_actions.permissions.1' };
    expect(problemWith({ effect: 'allow', action: 'file_write', path }), path).toMatchObject(problem);
  }
  expect(problemWith({ effect: 'allow', action: 'tool', tool: 'lab' })).toMatchObject({ code: 'invalid_agent' });
  for (const rule of [
    { effect: 'allow', action: 'file_write', path: '**/a*/?' },
    { effect: 'ask', action: 'file_read', path: '/etc/**' },
    { effect: 'deny', action: 'tool', tool: '*' },
    { effect: 'deny', action: 'shell', command: '*' },
    { effect: 'allow', action: 'code', expires_at: '2030-01-01T00:00:00.000Z' },
  ]) {
    expect(problemWith(rule), JSON.stringify(rule)).toBeUndefined();
  }
});
