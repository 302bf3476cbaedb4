import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ProtectedMcpServer, TestBrowser } from '../../support/authorization-server.ts';
import { startCodeServer } from '../../support/code-server.ts';
import { cell, responsesIn } from '../../support/code-turns.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { say } from '../../support/scripted-model.ts';
import type { TestServer } from '../../support/test-server.ts';

let server: TestServer;
let notes: ProtectedMcpServer;
// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

beforeAll(async () => {
  notes = await ProtectedMcpServer.start();
  server = await startCodeServer();
});
afterAll(async () => {
  await server.stop();
  await notes.stop();
});

test('the time for which a person signs in does not count against the time limit of a cell', async () => {
  const tools = { allowed_callers: ['model' as const, 'code' as const], require_approval_for_tools: [] };
  const chat = await server.chat({
    scripts: [say('Hello.')],
    spec: {
      code_actions: { approvals: 'allow' },
      mcp_servers: [{ type: 'inline', name: 'notes', url: notes.mcp.url, ...tools }],
      config: { pause: 'wait' },
    },
  });
  const opening = chat.turn('hello');
  const opened = await opening.type('mcp.auth_required');
  await opening.type('turn.paused');
  await new TestBrowser().open(opened.mcp_servers[0]?.auth_url ?? '');
  await opening.done;

  notes.rejectsCalls = true;
  // The first import takes seconds on a loaded machine: a cell of its own keeps it out of the limit.
  chat.script(
    cell('from mcptools.notes.list import run, Params'),
    cell('x = run(Params())\nprint(x)', { timeout_seconds: 5 }),
    say('Done.'),
  );
  const running = chat.turn('list');
  const required = await running.type('mcp.auth_required');
  await running.type('turn.paused');
  // Longer than a limit that is measured in real time.
  await sleep(6_000);
  notes.rejectsCalls = false;
  await new TestBrowser().open(required.mcp_servers[0]?.auth_url ?? '');
  const [, result] = responsesIn(await running.done);
  expect(result).toMatchObject({ outcome: 'succeeded', content: 'milk', execution: { exit: 'ok' } });
  expect(result?.execution?.waited_ms).toBeGreaterThanOrEqual(6_000);
});
