import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

/** The protocol's own suite, against `/mcp`. It sends no keys, so the server has none. */

const run = promisify(execFile);
const SUITE = fileURLToPath(
  new URL('../../../node_modules/@modelcontextprotocol/conformance/dist/index.js', import.meta.url),
);

const SCENARIOS = [
  'server-initialize',
  'ping',
  'tools-list',
  'server-sse-polling',
  'server-sse-multiple-streams',
  'dns-rebinding-protection',
];

/** The scenarios that do not apply, and why. */
const OTHERS: Record<string, string[]> = {
  'needs tools of the suite, with their fixed names and results': [
    'tools-call-simple-text',
    'tools-call-image',
    'tools-call-audio',
    'tools-call-embedded-resource',
    'tools-call-mixed-content',
    'tools-call-with-logging',
    'tools-call-error',
    'tools-call-with-progress',
    'tools-call-sampling',
    'tools-call-elicitation',
    'json-schema-2020-12',
    'elicitation-sep1034-defaults',
    'elicitation-sep1330-enums',
  ],
  'needs a capability that a server with tools alone does not declare': [
    'logging-set-level',
    'completion-complete',
    'resources-list',
    'resources-read-text',
    'resources-read-binary',
    'resources-templates-read',
    'resources-subscribe',
    'resources-unsubscribe',
    'prompts-list',
    'prompts-get-simple',
    'prompts-get-with-args',
    'prompts-get-embedded-resource',
    'prompts-get-with-image',
  ],
};

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer();
});
afterAll(() => server.stop());

const suite = (...args: string[]) => run(process.execPath, [SUITE, ...args], { timeout: 60_000 });

test('each scenario of the suite is run, or left out for a reason', async () => {
  const { stdout } = await suite('list', '--server');
  const listed = [...stdout.matchAll(/^ *- (\S+)/gm)].map(([, name]) => name);
  expect(new Set(listed)).toEqual(new Set([...SCENARIOS, ...Object.values(OTHERS).flat()]));
});

test.each(SCENARIOS)('%s', async (scenario) => {
  const { stdout } = await suite('server', '--url', `${server.api.url}/mcp`, '--scenario', scenario);
  expect(stdout).toMatch(/Passed: (\d+)\/\1, 0 failed/);
});
