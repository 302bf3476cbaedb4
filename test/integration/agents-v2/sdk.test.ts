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

/** The output of a script. */
async function seenBy(script: string, url: string): Promise<unknown> {
  const file = fileURLToPath(new URL(`../../python/${script}`, import.meta.url));
  const { stdout, stderr } = await run(python, [file, url, 'key-of-ann'], { timeout: 120_000 });
  expect(stderr).toBe('');
  return JSON.parse(stdout);
}

test('the unmodified Python SDK runs sessions, with tools, structured answers and further messages', async () => {
  const { api, model } = server;
  model.script('plain', say('17 and 23.'));
  model.script('structured', say('{"number": 23}'));
  model.script('tools', use({ name: 'lookup', id: 'call_1', args: { number: 17 } }), say('Yes.'));
  model.script('chatty', say('Hello.'), say('The end.'));
  expect(await seenBy('agents_v2.py', api.url)).toEqual({
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
});

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
});

test('the unmodified Python SDK keeps skills, environments and agents, and runs an agent by its name', async () => {
  const { api, model } = server;
  model.script(
    'desk',
    use({ name: 'lookup', id: 'call_1', args: { number: 17 } }),
    say('{"number": 17, "late": true}'),
  );
  expect(await seenBy('agents_v2_catalog.py', api.url)).toEqual({
    skills: [
      'refund',
      null,
      'Up to 80 EUR.',
      'Up to 80 EUR.',
      [1, 1, 'acme/refunds'],
      [409, 'already_exists'],
      [403, 'forbidden'],
      [404, 'skill_not_found'],
      [422, ['body', 'name']],
    ],
    environments: [
      ['Environment_Web', 1_200, true, 'https://shop.example.com'],
      ['desktop', 'user_device'],
      ['shop'],
      [404, 'environment_not_found'],
      null,
      1,
    ],
    agents: [
      [null, 'Be brief.', 'The desk', 'A desk'],
      [
        [4, 'ann', 'Restored from v1', 1],
        [3, 'ann', 'Renamed', null],
        [2, 'ann', null, null],
        [1, 'ann', 'First', null],
      ],
      ['"4"', ['acme/refunds'], 'Up to 80 EUR.'],
      'Be brief.',
      [['acme/desk', 4]],
      [412, 'precondition_failed'],
      [409, 'already_exists'],
      [422, ['body', 'environments', 0]],
    ],
    run: ['completed', 17, true, 'acme/refunds'],
    refused: [422, ['body', 'overrides', 'agent.colour']],
    deleted: [404, 'agent_not_found'],
  });
});
