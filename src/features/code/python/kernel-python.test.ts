import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { errorMessage } from '../../../lib/errors.ts';
import { builtKernelPython } from '../../../../test/support/kernel-python.ts';
import { KernelPython } from './kernel-python.ts';

let root: string;
let messages: string[];

beforeEach(async () => {
  root = await mkdtemp(path.join(tmpdir(), 'everturn-kernel-python-'));
  messages = [];
  onTestFinished(() => rm(root, { recursive: true, force: true }));
});

interface Given {
  python?: string;
  requirements?: string;
  env?: NodeJS.ProcessEnv;
  retryMs?: number;
}

function open({ python, requirements, env = process.env, retryMs = 3_600_000 }: Given): KernelPython {
  const log = pino({ base: null }, { write: (line: string) => void messages.push(line) });
  const opened = new KernelPython({ cacheDir: root, python, requirements, env, log, retryMs });
  onTestFinished(() => opened.close());
  return opened;
}

function program(name: string, ...lines: string[]): string {
  const file = path.join(root, name);
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, ['#!/bin/sh', ...lines, ''].join('\n'), { mode: 0o755 });
  return file;
}

/** A program that answers as a Python of this version does. */
function pretended(name: string, version: number[], hasVenv = true): string {
  return program(name, `echo '${JSON.stringify({ version, abi: 'cp', base: '/', hasVenv })}'`);
}

/** A real Python, in which the modules that kernels need have no content. */
function withModules(modules: Record<string, string>): string {
  const environment = path.join(root, 'own');
  execFileSync('python3', ['-m', 'venv', '--without-pip', environment]);
  const python = path.join(environment, 'bin', 'python3');
  const where = 'import sysconfig; print(sysconfig.get_path("purelib"))';
  const packages = execFileSync(python, ['-c', where], { encoding: 'utf8' }).trim();
  for (const [name, text] of Object.entries(modules)) writeFileSync(path.join(packages, `${name}.py`), text);
  return python;
}

const NEEDED = { IPython: '', matplotlib: '', pandas: '', cloudpickle: '', pydantic: 'VERSION = "2.9.1"' };

const REMEDY = 'install Python 3.10 or newer with its venv module, or set EVERTURN_KERNEL_PYTHON';

test('the error on a machine without Python is in the log once', async () => {
  const found = open({ env: { PATH: root }, retryMs: 1 });
  expect(found.state()).toEqual({ state: 'building' });
  const reason = `python3 is not on PATH: ${REMEDY}`;
  await expect(found.ready()).rejects.toThrow(reason);
  expect(found.state()).toEqual({ state: 'failed', reason });
  program('python3', 'echo broken >&2', 'exit 1');
  await expect
    .poll(() => found.state())
    .toEqual({
      state: 'failed',
      reason: `${root}/python3 does not run: broken: ${REMEDY}`,
    });
  expect(messages.map((line) => (JSON.parse(line) as { msg: string }).msg)).toEqual([
    `no agent can act in code: ${reason}`,
    expect.stringContaining('broken'),
  ]);
});

test('each unusable python3 on PATH is named', async () => {
  pretended('old/python3', [3, 9, 18]);
  pretended('bare/python3', [3, 13, 0], false);
  const env = { PATH: ['old', 'bare'].map((name) => path.join(root, name)).join(':') };
  await expect(open({ env }).ready()).rejects.toThrow(
    `${root}/old/python3 is Python 3.9.18; ${root}/bare/python3 has no venv module ` +
      `(on Debian: apt-get install python3-venv): ${REMEDY}`,
  );
});

test('the interpreter of the operator is used as it is', async () => {
  const python = withModules(NEEDED);
  const found = open({ python });
  const version = execFileSync(python, ['-V'], { encoding: 'utf8' }).trim().split(' ')[1];
  expect(await found.ready()).toEqual({ python, version });
  await expect.poll(() => found.state()).toEqual({ state: 'ready', python, version });
  expect(readdirSync(root)).toEqual(['own']);
});

test.each([
  ['no pandas', { ...NEEDED, pandas: 'raise ImportError("libfoo.so is missing")' }, /libfoo\.so is missing.*install/],
  ['no IPython', { pydantic: '', matplotlib: '', pandas: '' }, /No module named 'IPython'.*install IPython/],
  ['pydantic 1', { ...NEEDED, pydantic: 'VERSION = "1.10.2"' }, /pydantic is 1\.10\.2, and kernels need version 2/],
])('the interpreter of the operator is rejected if it has %s', async (_, modules, reason) => {
  const python = withModules(modules);
  await expect(open({ python }).ready()).rejects.toThrow(reason);
});

test('an interpreter of the operator that is old, or not there, is named', async () => {
  const python = pretended('py', [3, 9, 1]);
  await expect(open({ python }).ready()).rejects.toThrow(
    `EVERTURN_KERNEL_PYTHON ${python} is Python 3.9.1, and kernels need Python 3.10 or newer`,
  );
  const absent = path.join(root, 'absent');
  await expect(open({ python: absent }).ready()).rejects.toThrow(`EVERTURN_KERNEL_PYTHON ${absent} does not run`);
});

test('a failure is tried again: what was missing may be there later', async () => {
  const python = path.join(root, 'later');
  const found = open({ python, retryMs: 1 });
  await expect.poll(() => found.state().state).toBe('failed');
  pretended('later', [3, 12, 1]);
  await expect.poll(() => found.state().state).toBe('ready');
  expect(await found.ready()).toEqual({ python, version: '3.12.1' });
});

test('a lock file of the operator that is missing or too large is named', async () => {
  const requirements = path.join(root, 'more.lock');
  await expect(open({ requirements }).ready()).rejects.toThrow(/^EVERTURN_KERNEL_REQUIREMENTS .*ENOENT/);
  writeFileSync(requirements, '#'.repeat(4 * 1024 * 1024 + 1));
  await expect(open({ requirements }).ready()).rejects.toThrow(/^EVERTURN_KERNEL_REQUIREMENTS .*4194305 bytes/);
});

// A virtual environment takes some seconds of processor time.
test('a build ends when the server stops, and leaves nothing', { timeout: 300_000 }, async () => {
  // An index that accepts connections and sends nothing.
  const index = createServer().listen(0, '127.0.0.1');
  onTestFinished(() => void index.close());
  await once(index, 'listening');
  const { port } = index.address() as { port: number };
  const asked = once(index, 'connection');
  const env = { ...process.env, PIP_INDEX_URL: `http://127.0.0.1:${port}/`, PIP_FIND_LINKS: '' };
  const found = open({ env });
  const ended = found.ready().catch(errorMessage);
  const [socket] = (await asked) as [{ destroy: () => void }];
  expect(found.state()).toEqual({ state: 'building' });
  await found.close();
  socket.destroy();
  expect(await ended).toBe('the server is stopping');
  expect(readdirSync(path.join(root, 'kernels'))).toEqual([]);
});

test('the environment that is built can show a plot of a table', { timeout: 900_000 }, async () => {
  const code = [
    'import cloudpickle, IPython, matplotlib, pandas, pydantic',
    'matplotlib.use("agg")',
    'print(type(pandas.DataFrame({"a": [1, 2]}).plot()).__name__, pydantic.VERSION.split(".")[0])',
  ].join('\n');
  const python = await builtKernelPython();
  expect(execFileSync(python, ['-I', '-c', code], { encoding: 'utf8' })).toBe('Axes 2\n');
});
