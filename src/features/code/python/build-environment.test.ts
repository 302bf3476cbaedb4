import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, lstatSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, onTestFinished, test } from 'vitest';
import { NEVER_ABORTED } from '../../../lib/abort.ts';
import { environmentPython, type BuildStep } from './build-environment.ts';
import { findPython, type Interpreter } from './interpreter.ts';

const LOCK = readFileSync(new URL('requirements.lock', import.meta.url), 'utf8');

/** Real packages of a few kilobytes, as the lock file of kernels has them. */
const [SMALL = ''] = /^cycler==.*\n(?: .*\n)+/m.exec(LOCK) ?? [];
const [MORE = ''] = /^ptyprocess==.*\n(?: .*\n)+/m.exec(LOCK) ?? [];

/** A real virtual environment with pip, of which `interpreter` makes copies: each new one takes five seconds of processor time. */
let template: string;
let interpreter: Interpreter;

beforeAll(async () => {
  template = await mkdtemp(path.join(tmpdir(), 'everturn-venv-'));
  const found = await findPython({ env: process.env, signal: NEVER_ABORTED });
  execFileSync(found.file, ['-m', 'venv', path.join(template, 'made')]);
  const file = path.join(template, 'python3');
  // The modes of a copy follow the umask, as those of a new one do. Compiled modules are valid for the times of their files.
  const copy = `exec cp -r -P --preserve=timestamps "${template}/made" "$4"`;
  writeFileSync(file, `#!/bin/sh\n[ "$1 $2 $3" = "-I -m venv" ] && ${copy}\nexit 1\n`, { mode: 0o755 });
  interpreter = { ...found, file };
}, 300_000);
afterAll(() => rm(template, { recursive: true, force: true }));

let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-kernels-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
});

interface Given {
  locks?: string[];
  modules?: string[];
  env?: NodeJS.ProcessEnv;
  onStep?: (step: BuildStep) => void;
}

async function build({ locks = [SMALL], modules = ['cycler'], env, onStep = () => undefined }: Given = {}) {
  const options = { env: { ...process.env, ...env }, signal: NEVER_ABORTED };
  return environmentPython({ ...options, folder, interpreter, locks, modules, onStep });
}

// A loaded machine takes long for pip.
const BUILD = { timeout: 300_000 };

test('two builds at once make one environment, which is not built again', BUILD, async () => {
  const before = process.umask(0o077);
  onTestFinished(() => void process.umask(before));
  const steps: BuildStep[] = [];
  const locks = { locks: [SMALL, MORE], modules: ['cycler', 'ptyprocess'] };
  const given = { ...locks, onStep: (step: BuildStep) => void steps.push(step) };
  const [python, other] = await Promise.all([build(given), build(locks)]);
  expect(other).toBe(python);
  // It has the packages of all locks, compiled. The module of which it looks for the compiled file is imported by nothing,
  // which would compile it.
  const code = 'import cycler, importlib.util; print(importlib.util.find_spec("ptyprocess._fork_pty").cached)';
  const where = execFileSync(python, ['-I', '-c', code], { encoding: 'utf8' }).trim();
  const environment = path.dirname(path.dirname(python));
  expect(where.startsWith(`${environment}/`)).toBe(true);
  expect(existsSync(where)).toBe(true);
  // The environment is readable for other users under any umask.
  const all = readdirSync(environment, { recursive: true, encoding: 'utf8' });
  const modes = all.map((name) => lstatSync(path.join(environment, name)));
  expect(modes.length).toBeGreaterThan(100);
  const closed = modes.filter((one) => !one.isSymbolicLink() && (one.mode & 0o004) === 0);
  expect([closed, statSync(environment).mode & 0o005]).toEqual([[], 0o005]);
  expect(steps).toEqual(['creating the environment', 'installing packages', 'compiling', 'importing']);
  expect(await build(given)).toBe(python);
  expect(steps).toHaveLength(4);
  expect(readdirSync(folder)).toEqual([path.basename(environment)]);
  // The Python of which it has links may be removed.
  rmSync(python);
  writeFileSync(python, '#!/bin/sh\nexit 1\n', { mode: 0o755 });
  await expect(build(given)).rejects.toThrow(`the environment ${environment} does not run`);
});

test('a wheel whose digest the lock does not have is not installed, and nothing remains', BUILD, async () => {
  const wrong = SMALL.replaceAll(/sha256:[\da-f]{64}/g, `sha256:${'0'.repeat(64)}`);
  await expect(build({ locks: [wrong] })).rejects.toThrow(
    /^pip install: ERROR: THESE PACKAGES DO NOT MATCH THE HASHES/,
  );
  expect(readdirSync(folder)).toEqual([]);
});

test('an environment in which a module cannot be imported is none', BUILD, async () => {
  await expect(build({ modules: ['cycler', 'cyclone'] })).rejects.toThrow("No module named 'cyclone'");
  expect(readdirSync(folder)).toEqual([]);
});

test('a build that is killed in its last step leaves nothing that is used', BUILD, async () => {
  const script = `
    import { environmentPython } from ${JSON.stringify(new URL('build-environment.ts', import.meta.url))};
    const options = { env: process.env, signal: new AbortController().signal };
    const [folder, lock, interpreter] = process.argv.slice(1);
    const onStep = (step) => step === 'importing' && process.kill(process.pid, 'SIGKILL');
    await environmentPython({ ...options, folder, interpreter: JSON.parse(interpreter), locks: [lock], modules: ['cycler'], onStep });
  `;
  const args = [folder, SMALL, JSON.stringify(interpreter)];
  const child = spawn(process.execPath, ['--input-type=module', '-e', script, ...args], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  expect(await once(child, 'exit')).toEqual([null, 'SIGKILL']);
  expect(readdirSync(folder)).toEqual([expect.stringMatching(/^\.install-/)]);
});
