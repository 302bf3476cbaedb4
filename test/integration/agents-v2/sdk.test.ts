import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { INHERITED_ENV } from '../../support/inherited-env.ts';
import { pythonWith } from '../../support/python.ts';
import { ServerProcess } from '../../support/server-process.ts';
import { say, use } from '../../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

const run = promisify(execFile);

let server: TestServer;
let python: string;
beforeAll(async () => {
  python = await pythonWith('hai-agents==1.3.0');
  server = await startTestServer({ env: { EVERTURN_API_KEYS: 'ann:admin=key-of-ann' } });
}, 240_000);
afterAll(() => server.stop());

test('the unmodified Python SDK runs sessions, with tools, structured answers and further messages', async () => {
  const { api, model } = server;
  model.script('plain', say('17 and 23.'));
  model.script('structured', say('{"number": 23}'));
  model.script('tools', use({ name: 'lookup', id: 'call_1', args: { number: 17 } }), say('Yes.'));
  model.script('chatty', say('Hello.'), say('The end.'));
  const script = fileURLToPath(new URL('../../python/agents_v2.py', import.meta.url));
  const { stdout, stderr } = await run(python, [script, api.url, 'key-of-ann'], { timeout: 120_000 });
  expect(stderr).toBe('');
  expect(JSON.parse(stdout)).toEqual({
    run: [
      'completed',
      '17 and 23.',
      [
        'RequestStartEvent',
        'RequestStartDispatchedEvent',
        'AgentStartedEvent',
        'AgentEvent',
        'AgentEvent',
        'AgentEvent',
        'MetricsUpdateEvent',
        'AgentCompletionEvent',
      ],
      8,
    ],
    structured: ['completed', 23],
    tools: ['completed', 'Yes.'],
    chat: ['idle', 'Hello.', 'idle', 'The end.'],
    cancelled: 'interrupted',
    list: [4, 1, ['completed', 'completed'], 'Which orders are late?'],
    search: [true],
    quota: ['org', 100, true],
    tokens: null,
  });
}, 180_000);

test('the example of the unmodified SDK runs against a server as it starts without settings', async () => {
  const dataDir = await mkdtemp(path.join(tmpdir(), 'everturn-examples-'));
  const demo = await ServerProcess.prepare(dataDir, {});
  onTestFinished(async () => {
    await demo.stop();
    await rm(dataDir, { recursive: true, force: true });
  });
  await demo.start();
  const script = fileURLToPath(new URL('../../../examples/run_an_agent.py', import.meta.url));
  const { stdout } = await run(python, [script], { env: { ...INHERITED_ENV, EVERTURN_URL: demo.api.url } });
  const [tool, ...sessions] = stdout.trimEnd().split('\n');
  expect(tool).toBe('[tool] add_note: water the plants');
  expect(sessions).toEqual([
    expect.stringMatching(/^\[session\] idle: The tool answered: noted/),
    '[session] idle after 3 steps',
    '[session] completed: Plant',
  ]);
}, 120_000);
