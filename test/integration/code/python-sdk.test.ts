import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startCodeServer } from '../../support/code-server.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { pythonWith } from '../../support/python.ts';
import { say, use } from '../../support/scripted-model.ts';
import type { TestServer } from '../../support/test-server.ts';

const run = promisify(execFile);
const SCRIPT = fileURLToPath(new URL('../../python/code_actions.py', import.meta.url));

let server: TestServer;
let python: string;
// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

beforeAll(async () => {
  python = await pythonWith('truefoundry-gateway-sdk==0.4.2');
  const annotations = { readOnlyHint: false, destructiveHint: false };
  server = await startCodeServer({}, { mcp: { tools: [{ name: 'add', annotations, handler: () => 'added' }] } });
}, 240_000);
afterAll(() => server.stop());

test('the unmodified Python SDK answers for code, and for a tool that it calls, with its own types', async () => {
  const name = 'code-of-python';
  const tools = { allowed_callers: ['code'], require_approval_for_tools: ['@all'] };
  await server.api.putAgent(name, {
    model: { name },
    code_actions: {},
    mcp_servers: [{ type: 'truefoundry-mcp-registry', name: 'test', ...tools }],
  });
  const code = 'from mcptools.test.add import run, Params\nx = 6\nprint(run(Params()), x * 7)';
  server.model.script(name, use({ name: 'ipython', id: 'c1', args: { code } }), say('All done.'));
  const { stdout, stderr } = await run(python, [SCRIPT, server.api.url, name], { timeout: 120_000 });
  expect(stderr).toBe('');
  expect(JSON.parse(stdout)).toEqual({
    turns: [
      [
        ['ModelMessageEvent', 'main', ['ipython']],
        ['ToolApprovalRequiredEvent', 'main', ['c1']],
      ],
      [
        ['SandboxCreatedEvent', null, null],
        ['ThreadCreatedEvent', 'code', ['ipython', 'main', 'c1']],
        ['ModelMessageEvent', 'code', ['add']],
        ['ToolApprovalRequiredEvent', 'code', ['call_1']],
      ],
      [
        ['ToolResponseEvent', 'code', ['call_1', 'added']],
        ['ThreadDoneEvent', 'code', ['done', 'added 42']],
        ['ToolResponseEvent', 'main', ['c1', 'added 42']],
        ['ModelMessageEvent', 'main', 'All done.'],
      ],
    ],
    outputs: [null, null, 'All done.'],
  });
  expect(server.mcp.calls.map(({ tool }) => tool)).toEqual(['add']);
});
