import { spawn } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startDemoModel } from '../../../src/demo/demo-model.ts';
import type { LocalServer } from '../../../src/demo/local-server.ts';
import { INHERITED_ENV } from '../../support/inherited-env.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { killAtEnd } from '../../support/reaper.ts';
import { ServerProcess } from '../../support/server-process.ts';

const EXAMPLE = fileURLToPath(new URL('../../../examples/plot-in-code.ts', import.meta.url));
const PNG = '89504e470d0a1a0a';

let dataDir: string;
let model: LocalServer;
let server: ServerProcess;

// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

beforeAll(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), 'everturn-examples-'));
  model = await startDemoModel();
  server = await ServerProcess.prepare(dataDir, {
    EVERTURN_API_KEYS: 'ann:admin=key-of-ann',
    EVERTURN_AGENTS: 'examples/agents',
    EVERTURN_MCP_SERVERS: 'examples/mcp-servers.json',
    EVERTURN_KERNELS: '1',
    EVERTURN_KERNEL_PYTHON: await kernelPython(),
    OPENAI_BASE_URL: model.url,
  });
  await server.start();
});
afterAll(async () => {
  await server.stop();
  await model.stop();
  await rm(dataDir, { recursive: true, force: true });
});

test('examples/plot-in-code.ts draws its plot although the server is killed while its code waits', async () => {
  const plot = path.join(dataDir, 'plot.png');
  const env = { ...INHERITED_ENV, EVERTURN_URL: server.api.url, EVERTURN_KEY: 'key-of-ann' };
  const child = killAtEnd(spawn(process.execPath, [EXAMPLE, plot], { env, stdio: ['pipe', 'pipe', 'inherit'] }));
  let output = '';
  let kills = 0;
  for await (const chunk of child.stdout.setEncoding('utf8')) {
    output += String(chunk);
    if (kills > 0 || !output.includes('press Enter')) continue;
    kills += 1;
    await server.kill();
    await server.start();
    child.stdin.end('\n');
  }
  expect(output).toMatch(
    /\[approval\] .*add_note[^]*the last square is 361[^]*\[tool\] Noted\. There are \d notes now\.\n[^]*\[plot\] .*plot\.png\n[^]*\[turn\] done\n$/,
  );
  expect(kills).toBe(1);
  expect((await readFile(plot)).toString('hex', 0, 8)).toBe(PNG);
});
