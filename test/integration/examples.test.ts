import { execFile, spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, inject, onTestFinished, test } from 'vitest';
import { ProtectedMcpServer, TestBrowser } from '../support/authorization-server.ts';
import { startDemoModel } from '../../src/demo/demo-model.ts';
import type { LocalServer } from '../../src/demo/local-server.ts';
import { newId } from '../../src/engine/new-id.ts';
import { INHERITED_ENV } from '../support/inherited-env.ts';
import { failing, PROTOCOLS, sending, startEndpoint, type Endpoint } from '../support/model-protocols.ts';
import { ServerProcess } from '../support/server-process.ts';

const run = promisify(execFile);

/** As `examples/README.md` starts a server with keys; the guides run the examples without. */
const WITH_KEYS = {
  EVERTURN_API_KEYS: 'ann:admin=key-of-ann',
  EVERTURN_SKILLS: 'examples/skills',
  EVERTURN_AGENTS: 'examples/agents',
  EVERTURN_MCP_SERVERS: 'examples/mcp-servers.json',
  EVERTURN_ALLOW_PRIVATE_URLS: 'true',
};

let dataDir: string;
let model: LocalServer;
/** Two more providers, for a model and the one that replaces it. */
let first: Endpoint;
let second: Endpoint;
let server: ServerProcess;
beforeAll(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), 'everturn-examples-'));
  model = await startDemoModel();
  [first, second] = [await startEndpoint(), await startEndpoint()];
  const file = path.join(dataDir, 'providers.json');
  const providers = {
    first: { kind: 'google', base_url: first.url, models: { 'model-1': {} } },
    second: { kind: 'anthropic', base_url: second.url, models: { 'model-2': {} } },
  };
  await writeFile(file, JSON.stringify({ providers }));
  server = await ServerProcess.prepare(dataDir, {
    ...WITH_KEYS,
    OPENAI_BASE_URL: model.url,
    EVERTURN_MODEL_PROVIDERS: file,
    EVERTURN_TASK_QUEUE: newId('req'),
    TEMPORAL_ADDRESS: inject('temporalAddress'),
    TEMPORAL_NAMESPACE: inject('temporalNamespace'),
  });
  await server.start();
});
afterAll(async () => {
  await server.stop();
  await Promise.all([model.stop(), first.stop(), second.stop()]);
  await rm(dataDir, { recursive: true, force: true });
});

// Most of their time they wait for words of the demo model.
test.concurrent.each([
  ['stream-a-turn', /The tool answered: [^]*\[turn\] done\n$/],
  ['approve-a-tool-call', /\[approval\] allowing 1 call\(s\)\n[^]*\[turn\] done\n$/],
  [
    'decide-from-an-inbox',
    /\[inbox\] demo wants add_note\({"note":"water the plants"}\)\n[^]*\[turn\] done\n\[inbox\] action.decided: decided\n$/,
  ],
  // The stream may end before or after the webhook.
  ['receive-webhooks', /\[webhook\] action.created [^]*\[webhook\] turn.done .*: done\n/],
  [
    'decide-in-a-running-turn',
    /\[turn\.paused\]\n[^]*\[tool\.decided\]\n[^]*\[tool\.response\] ran with {"note":"water the plants, and the tree"}\n[^]*\[turn\.done\]\n$/,
  ],
  [
    'steer-a-running-turn',
    /I will count\. [^]*\[turn\.paused\]\n[^]*\[user\.steered\]\n[^]*\[turn\.resumed\]\n[^]*Let me look\. [^]*\[turn\.done\]\n$/,
  ],
  [
    'raise-a-budget',
    /Let me look\. [^]*\[turn\.paused\]\n\[budget\] 1 of 1 model calls\n[^]*\[turn\.resumed\]\n[^]*The tool answered: [^]*\[turn\.done\]\n$/,
  ],
  ['answer-a-client-tool', /The tool answered: green[^]*\[turn\] done\n$/],
  [
    'answer-in-a-schema',
    /^Here you are: {.*}\n\[not accepted\] it is not valid JSON: .*\n{.*}\n\[turn\] done { city: 'text', people: 1 }\n$/,
  ],
  ['answer-an-elicitation', /\[question\] Which notes [^]*The tool answered: Deleted 1 notes[^]*\[turn\] done\n$/],
  [
    'follow-a-session',
    /^\[turn 1\] turn_\w+\n[^]*I am the demo model[^]*\[turn 1\] done\n\[turn 2\] [^]*\[turn 2\] done\n$/,
  ],
  ['queue-turns', /^\[turn 1\] begins\n[^]*\[turn 1\] done\n[^]*\[turn 2\] done\n[^]*\[turn 3\] done\n$/],
  ['delegate-to-sub-agents', /helper 2 starts\n[^]*helper 2: You said: "say hello"[^]*\[turn\] done\n$/],
  ['ask-about-a-file', /You said: "What is this file about\? File template\.md [^]*### Corrected[^]*\[turn\] done\n$/],
  [
    'compact-a-conversation',
    /Let me look\. \n\[compacted\] 1\d{3} tokens, now: You said: "<conversation>[^]*The tool answered: [^]*\[turn\] done\n$/,
  ],
  [
    'run-a-client-tool',
    /^\[run\] paused for search_notes\({}\)\nThe tool answered: water the plants, buy milk [^]*\n\[run\] completed, items: message, model, tool, model\n$/,
  ],
  ['read-a-skill', /\[read\] # Release notes\n[^]*- template\.md\n[^]*\[turn\] done\n$/],
  ['resume-a-stream', /I am the demo model: a script[^]*a question to you\.\n\[turn\] done, after \d+ connections\n$/],
])('examples/%s.ts does what its description says', async (name, output) => {
  expect(await example(name, server)).toMatch(output);
});

test('examples/fall-back-to-another-model.ts does what its description says', async () => {
  first.script(
    failing({ error: { code: 429, message: 'busy', status: 'RESOURCE_EXHAUSTED' } }, 429, { 'retry-after': '60' }),
  );
  second.script(sending(...(PROTOCOLS[0]?.events({ text: 'I am the second.' }) ?? [])));
  expect(await example('fall-back-to-another-model', server, 'first/model-1', 'second/model-2')).toMatch(
    /I am the second\.\n\[failed\] first\/model-1: rate_limited\n\[model\] second\/model-2\n$/,
  );
});

test('examples/sign-in-to-an-mcp-server.ts continues after the user has signed in', async () => {
  const notes = await ProtectedMcpServer.start();
  onTestFinished(() => notes.stop());
  const file = fileURLToPath(new URL('../../examples/sign-in-to-an-mcp-server.ts', import.meta.url));
  const env = { ...INHERITED_ENV, EVERTURN_URL: server.api.url, EVERTURN_KEY: 'key-of-ann' };
  const child = spawn(process.execPath, [file, notes.mcp.url], { env, stdio: ['ignore', 'pipe', 'inherit'] });
  let output = '';
  let isSignedIn = false;
  for await (const chunk of child.stdout.setEncoding('utf8')) {
    output += String(chunk);
    const [, url] = /\[sign-in\] mine: open (\S+)\n/.exec(output) ?? [];
    if (url === undefined || isSignedIn) continue;
    expect((await new TestBrowser().open(url)).text).toContain('You are signed in to mine');
    isSignedIn = true;
  }
  expect(output).toMatch(/I am the demo model[^]*\[turn\] done\n$/);
  expect(notes.used.length).toBeGreaterThan(0);
});

/** Runs an example and returns its output. */
async function example(name: string, { api }: ServerProcess, ...args: string[]): Promise<string> {
  const file = fileURLToPath(new URL(`../../examples/${name}.ts`, import.meta.url));
  const env = { ...INHERITED_ENV, EVERTURN_URL: api.url, EVERTURN_KEY: 'key-of-ann' };
  const { stdout } = await run(process.execPath, [file, ...args], { env });
  return stdout;
}
