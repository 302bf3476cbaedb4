import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { pythonWith } from '../../support/python.ts';
import { say } from '../../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

const run = promisify(execFile);

let server: TestServer;
let python: string;
beforeAll(async () => {
  python = await pythonWith('hai-agents==1.3.0');
  server = await startTestServer({ env: { EVERTURN_API_KEYS: 'ann:admin=key-of-ann' } });
}, 240_000);
afterAll(() => server.stop());

test('the unmodified Python SDK creates, triggers, changes and deletes schedules', async () => {
  const { api, model } = server;
  model.script('nightly', say('17 and 23.'));
  const script = fileURLToPath(new URL('../../python/agents_v2_schedules.py', import.meta.url));
  const { stdout, stderr } = await run(python, [script, api.url, 'key-of-ann'], { timeout: 120_000 });
  expect(stderr).toBe('');
  expect(JSON.parse(stdout)).toEqual({
    created: ['Late orders', '0 9 * * 1-5', 3, 3],
    request: ['nightly', 'Which orders are late?'],
    run: ['created', true, true],
    result: ['completed', '17 and 23.'],
    paused: [true, 'Holidays', []],
    'paused again': null,
    resumed: false,
    changed: ['Late orders', '*/5 * * * *'],
    read: true,
    list: [[true], 1, 1],
    runs: [[true], 1],
    invalid: [['body', 'timing', 'expression']],
    deleted: 404,
  });
});
