import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, lstatSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { NEVER_ABORTED } from '../../../lib/abort.ts';
import { environmentPython, type BuildStep } from './build-environment.ts';
import { findPython } from './interpreter.ts';

const LOCK = readFileSync(new URL('requirements.lock', import.meta.url), 'utf8');

/** Real packages of a few kilobytes, as the lock file of kernels has them. */
const [SMALL = ''] = /^cycler==.*\n(?: .*\n)+/m.exec(LOCK) ?? [];
const [MORE = ''] = /^ptyprocess==.*\n(?: .*\n)+/m.exec(LOCK) ?? [];

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
  const interpreter = await findPython(options);
  return environmentPython({ ...options, folder, interpreter, locks, modules, onStep });
}

// Each build runs ensurepip and pip, which take ten seconds of processor time.
const BUILD = { timeout: 300_000 };

test('an environment has the packages of all its locks, compiled, and is built once', BUILD, async () => {
  const steps: BuildStep[] = [];
  const onStep = (step: BuildStep) => void steps.push(step);
  const given = { locks: [SMALL, MORE], modules: ['cycler', 'ptyprocess'], onStep };
  const python = await build(given);
  const where = execFileSync(python, ['-I', '-c', 'import cycler, ptyprocess; print(cycler.__cached__)'], {
    encoding: 'utf8',
  }).trim();
  const environment = path.dirname(path.dirname(python));
  expect(where.startsWith(`${environment}/`)).toBe(true);
  expect(existsSync(where)).toBe(true);
  expect(steps).toEqual(['creating the environment', 'installing packages', 'compiling', 'importing']);
  expect(await build(given)).toBe(python);
  expect(steps).toHaveLength(4);
  expect(readdirSync(folder)).toEqual([path.basename(environment)]);
  // The Python of which it has links may be removed.
  rmSync(python);
  writeFileSync(python, '#!/bin/sh\nexit 1\n', { mode: 0o755 });
  await expect(build(given)).rejects.toThrow(`the environment ${environment} does not run`);
});

test('other users can read an environment, whatever the umask', BUILD, async () => {
  const before = process.umask(0o077);
  onTestFinished(() => void process.umask(before));
  const python = await build();
  const environment = path.dirname(path.dirname(python));
  const all = readdirSync(environment, { recursive: true, encoding: 'utf8' });
  const modes = all.map((name) => lstatSync(path.join(environment, name)));
  expect(modes.length).toBeGreaterThan(100);
  const closed = modes.filter((one) => !one.isSymbolicLink() && (one.mode & 0o004) === 0);
  expect([closed, statSync(environment).mode & 0o005]).toEqual([[], 0o005]);
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

test('two builds at once make one environment', BUILD, async () => {
  const [one, other] = await Promise.all([build(), build()]);
  expect(one).toBe(other);
  expect(readdirSync(folder)).toEqual([path.basename(path.dirname(path.dirname(one)))]);
});

test('a build that is killed in its last step leaves nothing that is used', BUILD, async () => {
  const script = `
    import { findPython } from ${JSON.stringify(new URL('interpreter.ts', import.meta.url))};
    import { environmentPython } from ${JSON.stringify(new URL('build-environment.ts', import.meta.url))};
    const options = { env: process.env, signal: new AbortController().signal };
    const [folder, lock] = process.argv.slice(1);
    const onStep = (step) => step === 'importing' && process.kill(process.pid, 'SIGKILL');
    const interpreter = await findPython(options);
    await environmentPython({ ...options, folder, interpreter, locks: [lock], modules: ['cycler'], onStep });
  `;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script, folder, SMALL], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  expect(await once(child, 'exit')).toEqual([null, 'SIGKILL']);
  expect(readdirSync(folder)).toEqual([expect.stringMatching(/^\.install-/)]);
});
