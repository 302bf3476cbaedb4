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
  server = await startTestServer({ env: { EVERTURN_API_KEYS: 'ann:user=key-of-ann' } });
}, 240_000);
afterAll(() => server.stop());

test('the unmodified Python SDK lists events, reads files, gives feedback and shares a session', async () => {
  server.model.script('shown', say('A dot.'));
  const script = fileURLToPath(new URL('../../python/agents_v2_records.py', import.meta.url));
  const { stdout, stderr } = await run(python, [script, server.api.url, 'key-of-ann'], { timeout: 60_000 });
  expect(stderr).toBe('');
  expect(JSON.parse(stdout)).toEqual({
    events: ['AgentCompletionEvent', 8, ['MetricsUpdateEvent'], 1],
    resource: true,
    missing_event: 404,
    share: true,
    files: ['feature_not_available'],
  });
});
