import { execFile, spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { ProtectedMcpServer, TestBrowser } from '../support/authorization-server.ts';
import { ServerProcess } from '../support/server-process.ts';

const run = promisify(execFile);

let dataDir: string;
let server: ServerProcess;
beforeAll(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), 'everturn-examples-'));
  server = await ServerProcess.prepare(dataDir, {});
  await server.start();
});
afterAll(async () => {
  await server.stop();
  await rm(dataDir, { recursive: true, force: true });
});

test.each([
  ['stream-a-turn', /The tool answered: [^]*\[turn\] done\n$/],
  ['approve-a-tool-call', /\[approval\] allowing 1 call\(s\)\n[^]*\[turn\] done\n$/],
  [
    'decide-from-an-inbox',
    /\[inbox\] demo wants add_note\({"note":"water the plants"}\)\n[^]*\[turn\] done\n\[inbox\] action.decided: decided\n$/,
  ],
  ['receive-webhooks', /\[webhook\] action.created [^]*\[webhook\] turn.done .*: done\n$/],
  [
    'decide-in-a-running-turn',
    /\[turn\.paused\]\n[^]*\[tool\.decided\]\n[^]*\[tool\.response\]\n[^]*\[turn\.done\]\n$/,
  ],
  ['answer-a-client-tool', /The tool answered: green[^]*\[turn\] done\n$/],
  ['answer-an-elicitation', /\[question\] Which notes [^]*The tool answered: Deleted 1 notes[^]*\[turn\] done\n$/],
  [
    'follow-a-session',
    /^\[turn 1\] turn_\w+\n[^]*I am the demo model[^]*\[turn 1\] done\n\[turn 2\] [^]*\[turn 2\] done\n$/,
  ],
  ['delegate-to-sub-agents', /helper 2 starts\n[^]*helper 2: You said: "say hello"[^]*\[turn\] done\n$/],
  ['resume-a-stream', /I am the demo model: a script[^]*a question to you\.\n\[turn\] done, after \d+ connections\n$/],
])('examples/%s.ts does what its description says', async (name, output) => {
  const file = fileURLToPath(new URL(`../../examples/${name}.ts`, import.meta.url));
  const { stdout } = await run(process.execPath, [file], { env: { ...process.env, EVERTURN_URL: server.api.url } });
  expect(stdout).toMatch(output);
});

test('examples/sign-in-to-an-mcp-server.ts continues after the user has signed in', async () => {
  const notes = await ProtectedMcpServer.start();
  onTestFinished(() => notes.stop());
  const file = fileURLToPath(new URL('../../examples/sign-in-to-an-mcp-server.ts', import.meta.url));
  const env = { ...process.env, EVERTURN_URL: server.api.url };
  const example = spawn(process.execPath, [file, notes.mcp.url], { env, stdio: ['pipe', 'pipe', 'inherit'] });
  let output = '';
  for await (const chunk of example.stdout.setEncoding('utf8')) {
    output += String(chunk);
    const [, url] = /\[sign-in\] mine: open (\S+)\n/.exec(output) ?? [];
    if (url === undefined || example.stdin.writableEnded) continue;
    expect((await new TestBrowser().open(url)).text).toContain('You are signed in to mine');
    example.stdin.end('\n');
  }
  expect(output).toMatch(/I am the demo model[^]*\[turn\] done\n$/);
  expect(notes.used.length).toBeGreaterThan(0);
});
