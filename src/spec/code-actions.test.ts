import { expect, test } from 'vitest';
import { agentSpec, type AgentSpec } from './agent-spec.ts';
import { asksForTools, atMost, codeActionsOf, type KernelLimits } from './code-actions.ts';
import { CODE_ACTIONS, KERNEL_LIMITS } from './code-actions-spec.ts';

const parse = (rest: object): AgentSpec => agentSpec.parse({ model: { name: 'm' }, ...rest });
const actionsOf = (rest: object) => codeActionsOf(parse(rest));
const all = (word: string) => Object.fromEntries(Object.keys(CODE_ACTIONS).map((action) => [action, word]));

test('an empty block enables code actions, with all defaults', () => {
  expect(actionsOf({ code_actions: {} })).toEqual({
    approvals: {
      code: 'ask',
      shell: 'ask',
      reset: 'ask',
      file_read: 'allow',
      file_write: 'ask',
      file_edit: 'ask',
      task: 'ask',
      save_tool: 'ask',
    },
    permissions: [],
    endsOnDenial: false,
    kernel: {
      timeout_seconds: 300,
      idle_seconds: 1_800,
      suspend_seconds: 86_400,
      memory_mb: 1_024,
      cpus: 1,
      processes: 128,
      output_bytes: 16_777_216,
      env: {},
      state: 'memory',
    },
    network: { allow: [] },
    workspace: { max_bytes: 1_073_741_824, max_files: 10_000, files: [], instructions_file: 'AGENTS.md' },
    results: { inline_bytes: 32_768, preview_chars: 2_048 },
    images: 'link',
    sub_tasks: { max_concurrent: 5, max_turns: 100 },
    savedTools: 'subject',
    toolSearch: 'keyword',
  });
});

test('null is unset, on each level', () => {
  const block = {
    enabled: null,
    approvals: { code: null },
    kernel: { timeout_seconds: null, cpus: null, state: null },
    network: { allow: null },
    workspace: { files: null, max_bytes: null },
    results: { inline_bytes: null },
    images: null,
    saved_tools: null,
  };
  const defaults = actionsOf({ code_actions: {} });
  expect(actionsOf({ code_actions: block })).toEqual(defaults);
  const empty = { approvals: null, kernel: null, network: null, workspace: null, results: null };
  expect(actionsOf({ code_actions: empty })).toEqual(defaults);
});

test('the file with instructions is one of the workspace, or none', () => {
  const fileOf = (given: unknown) =>
    actionsOf({ code_actions: { workspace: { instructions_file: given } } })?.workspace;
  expect(fileOf('/workspace/docs/../rules.md')).toMatchObject({ instructions_file: 'rules.md' });
  expect(fileOf(null)).toMatchObject({ instructions_file: null });
  expect(fileOf('../rules.md')).toMatchObject({ instructions_file: null });
});

test('what the block says replaces the defaults', () => {
  const kernel = {
    timeout_seconds: 5,
    idle_seconds: 60,
    suspend_seconds: 61,
    memory_mb: 512,
    cpus: 0.5,
    processes: 16,
    output_bytes: 1_024,
    env: { A: 'x' },
  };
  const results = { inline_bytes: 2_048, preview_chars: 0 };
  const files = [{ path: '/workspace/data/../a.txt', data: 'data:text/plain;charset=utf-8;base64,aGk=' }];
  const workspace = { max_bytes: 9, max_files: 1 };
  const network = { allow: ['PyPI.org', '*.example.com'] };
  expect(actionsOf({ code_actions: { kernel, network, results, workspace: { ...workspace, files } } })).toMatchObject({
    kernel,
    network: { allow: ['pypi.org', '*.example.com'] },
    results,
    workspace: { ...workspace, files: [{ path: 'a.txt', base64: 'aGk=' }] },
  });
});

test('approvals are a word for all actions, or one for each', () => {
  const approvalsOf = (approvals: unknown) => actionsOf({ code_actions: { approvals } })?.approvals;
  for (const word of ['allow', 'ask', 'deny']) expect(approvalsOf(word)).toEqual(all(word));
  expect(approvalsOf({ code: 'allow', file_read: 'deny' })).toEqual({
    ...CODE_ACTIONS,
    code: 'allow',
    file_read: 'deny',
  });
});

test('all tools of MCP servers are asked about if the map says so, and a word does not concern them', () => {
  const asks = (approvals: unknown, enabled = true) => asksForTools(parse({ code_actions: { approvals, enabled } }));
  expect(asks({ tool: 'ask' })).toBe(true);
  for (const approvals of ['ask', { tool: null }, { code: 'ask' }, null]) expect(asks(approvals)).toBe(false);
  expect(asks({ tool: 'ask' }, false)).toBe(false);
});

test('a turn ends with a denial only if the agent says so', () => {
  const endsOnDenial = (on_deny: unknown) => actionsOf({ code_actions: { on_deny } })?.endsOnDenial;
  expect([endsOnDenial('end'), endsOnDenial('tell'), endsOnDenial(null)]).toEqual([true, false, false]);
});

test('an agent has its rules in their order', () => {
  const permissions = [{ effect: 'deny', action: 'shell', command: 'rm *' }, { preset: 'read_only' }];
  expect(actionsOf({ code_actions: { permissions } })?.permissions).toEqual(permissions);
});

test('an enabled sandbox alone asks for nothing, and a disabled one or block runs no code', () => {
  const sandbox = (enabled: boolean | null) => ({ config: { sandbox: { enabled } } });
  expect(actionsOf(sandbox(true))).toEqual(actionsOf({ code_actions: { approvals: 'allow' } }));
  expect(actionsOf({ code_actions: {}, ...sandbox(true) })?.approvals).toEqual(CODE_ACTIONS);
  expect(actionsOf({ code_actions: {}, ...sandbox(null) })).toBeDefined();
  for (const none of [
    {},
    { code_actions: null },
    sandbox(null),
    sandbox(false),
    { code_actions: { enabled: false } },
    { code_actions: { enabled: false }, ...sandbox(true) },
    { code_actions: {}, ...sandbox(false) },
  ]) {
    expect(actionsOf(none), JSON.stringify(none)).toBeUndefined();
  }
});

test.each([
  [{ approval_timeout: 1 }, 'code_actions'],
  [{ approval_timeout_seconds: 0 }, 'code_actions.approval_timeout_seconds'],
  [{ approval_timeout_seconds: 2_592_001 }, 'code_actions.approval_timeout_seconds'],
  [{ on_deny: 'stop' }, 'code_actions.on_deny'],
  [{ permissions: {} }, 'code_actions.permissions'],
  ...[
    { effect: 'allow', action: 'save' },
    { effect: 'allow', action: 'task', path: 'a' },
    { effect: 'permit', action: 'code' },
    { action: 'code' },
    { effect: 'allow', action: 'code', command: 'ls' },
    { effect: 'allow', action: 'shell' },
    { effect: 'allow', action: 'file_read', path: 'a', scope: 'session' },
    { effect: 'allow', action: 'tool', path: 'a' },
    { preset: 'read_write' },
  ].map((rule): [object, string] => [{ permissions: [rule] }, 'code_actions.permissions.0']),
  [{ network: { allow: ['127.0.0.1'] } }, 'code_actions.network.allow.0'],
  [{ network: { allow: ['pypi.org', 'a.com:80'] } }, 'code_actions.network.allow.1'],
  [{ network: { allow: Array(101).fill('a.com') } }, 'code_actions.network.allow'],
  [{ network: { deny: [] } }, 'code_actions.network'],
  [{ approvals: 'never' }, 'code_actions.approvals'],
  [{ permissions: [{ effect: 'allow', action: 'shell', command: '' }] }, 'code_actions.permissions.0.command'],
  [
    { permissions: [{ effect: 'allow', action: 'code', expires_at: 'tomorrow' }] },
    'code_actions.permissions.0.expires_at',
  ],
  [{ approvals: { save: 'ask' } }, 'code_actions.approvals'],
  [{ sub_tasks: { max: 1 } }, 'code_actions.sub_tasks'],
  [{ sub_tasks: { max_concurrent: 21 } }, 'code_actions.sub_tasks.max_concurrent'],
  [{ sub_tasks: { max_turns: 0 } }, 'code_actions.sub_tasks.max_turns'],
  [{ sub_tasks: { max_turns: 10_001 } }, 'code_actions.sub_tasks.max_turns'],
  [{ approvals: { tool: 'allow' } }, 'code_actions.approvals'],
  [{ kernel: { environment: {} } }, 'code_actions.kernel'],
  [{ kernel: { env: { 'A-B': 'x' } } }, 'code_actions.kernel.env.A-B'],
  [{ kernel: { env: { A: 1 } } }, 'code_actions.kernel.env.A'],
  [{ kernel: { timeout_seconds: 0 } }, 'code_actions.kernel.timeout_seconds'],
  [{ kernel: { timeout_seconds: 1.5 } }, 'code_actions.kernel.timeout_seconds'],
  [{ kernel: { idle_seconds: 59 } }, 'code_actions.kernel.idle_seconds'],
  [{ kernel: { suspend_seconds: 2_592_001 } }, 'code_actions.kernel.suspend_seconds'],
  [{ kernel: { memory_mb: 127 } }, 'code_actions.kernel.memory_mb'],
  [{ kernel: { cpus: 0 } }, 'code_actions.kernel.cpus'],
  [{ kernel: { processes: 15 } }, 'code_actions.kernel.processes'],
  [{ kernel: { output_bytes: 67_108_865 } }, 'code_actions.kernel.output_bytes'],
  [{ results: { inline_bytes: 1_023 } }, 'code_actions.results.inline_bytes'],
  [{ results: { preview_chars: 65_537 } }, 'code_actions.results.preview_chars'],
  [{ workspace: { instructions: 'A.md' } }, 'code_actions.workspace'],
  [{ workspace: { files: [{ path: 'a', data: 'http://x/a' }] } }, 'code_actions.workspace.files.0.data'],
  [{ workspace: { files: [{ path: 'a', data: 'data:a/b;base64,a' }] } }, 'code_actions.workspace.files.0.data'],
  [
    { workspace: { files: Array.from({ length: 101 }, () => ({ path: 'a', data: 'data:a/b;base64,' })) } },
    'code_actions.workspace.files',
  ],
  [{ images: 'inline' }, 'code_actions.images'],
])('the block %j is rejected', (block, place) => {
  const { error } = agentSpec.safeParse({ model: { name: 'm' }, code_actions: block });
  expect(error?.issues.map(({ path }) => path.join('.'))).toEqual([place]);
});

test('limits are lowered to the maxima of the operator, each to its own', () => {
  const kernel = codeActionsOf(parse({ code_actions: {} }))?.kernel;
  if (!kernel) throw new Error('no code actions');
  const maxima = Object.fromEntries(
    Object.entries(KERNEL_LIMITS).map(([limit, { maximum }]) => [limit, maximum]),
  ) as KernelLimits;
  expect(atMost(kernel, maxima)).toEqual(kernel);
  for (const limit of Object.keys(maxima)) {
    expect(atMost(kernel, { ...maxima, [limit]: 0.5 })).toEqual({ ...kernel, [limit]: 0.5 });
  }
});
