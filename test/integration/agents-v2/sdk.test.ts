import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { pythonWith } from '../../support/python.ts';
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
  });
}, 180_000);
