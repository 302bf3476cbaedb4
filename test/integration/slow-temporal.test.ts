import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { freePort } from '../../src/lib/processes.ts';
import { waitUntilReady } from '../../src/temporal-server/wait-until-ready.ts';
import { killAtEnd } from '../support/reaper.ts';
import { ScriptedModel, use } from '../support/scripted-model.ts';
import { ServerProcess } from '../support/server-process.ts';
import { findTemporalCli } from '../support/temporal-cli.ts';

test('an external Temporal whose configuration makes it slow is reported, with the setting to change', async () => {
  const dataDir = await mkdtemp(path.join(tmpdir(), 'everturn-slow-'));
  onTestFinished(() => rm(dataDir, { recursive: true, force: true }));
  const binary = await findTemporalCli();
  const port = await freePort();
  // A quarter of the default, so that turns on a busy machine have more steps than that, too.
  const slow = ['--dynamic-config-value', 'history.transferProcessorMaxPollRPS=5'];
  const args = ['server', 'start-dev', '--headless', '--port', String(port), ...slow];
  const temporal = killAtEnd(spawn(binary, args, { stdio: 'ignore' }));
  const model = await ScriptedModel.start();
  model.otherwise = use({ name: 'search_notes' });
  try {
    const signal = AbortSignal.timeout(30_000);
    await waitUntilReady({ port, namespace: 'default', timeoutMs: 30_000, signal });
    const server = await ServerProcess.prepare(dataDir, {
      TEMPORAL_ADDRESS: `127.0.0.1:${port}`,
      OPENAI_API_KEY: 'x',
      OPENAI_BASE_URL: model.url,
    });
    await server.start();
    // Together they have more steps than such a server dispatches.
    const sessions = await Promise.all(Array.from({ length: 8 }, () => server.api.createSession('demo')));
    for (const session of sessions) server.api.turn(session, 'list them again and again');
    await expect
      .poll(() => server.output)
      .toMatch(/Temporal takes \d+ ms or more from one activity to the next.*history\.transferProcessorMaxPollRPS/);
    expect(await server.stop()).toBe(0);
  } finally {
    temporal.kill('SIGKILL');
    await model.stop();
  }
});
