import { readFileSync } from 'node:fs';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { pipInstall } from './pip-install.ts';
import { freePort } from './processes.ts';

const LOCK = readFileSync(new URL('../features/code/python/requirements.lock', import.meta.url), 'utf8');

/** A real package of a few kilobytes. */
const [SMALL = ''] = /^cycler==.*\n(?: .*\n)+/m.exec(LOCK) ?? [];

/** Returns what is installed. */
async function install(requirements: string, env: NodeJS.ProcessEnv = {}, timeoutMs = 120_000): Promise<string[]> {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-pip-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const target = path.join(folder, 'target');
  const file = path.join(folder, 'requirements.txt');
  await writeFile(file, requirements);
  await pipInstall({
    pip: ['python3', '-I', '-m', 'pip'],
    args: ['--no-deps', '--target', target, '-r', file],
    env: { ...process.env, ...env },
    timeoutMs,
  });
  return readdir(target);
}

test('a package is installed if its digest is right, also where the configuration has other folders', async () => {
  const env = { PIP_USER: '1', PIP_REQUIRE_VIRTUALENV: '1' };
  expect(await install(SMALL, env)).toContain('cycler');
});

test('a requirement without a digest is not installed', async () => {
  await expect(install('cycler==0.12.1\n')).rejects.toThrow(/^pip install: ERROR: .*[Hh]ash/);
});

test('an index that cannot be reached is the problem, not the package that it was asked for', async () => {
  const env = { PIP_INDEX_URL: `http://127.0.0.1:${await freePort()}/`, PIP_FIND_LINKS: '' };
  await expect(install(SMALL, env)).rejects.toThrow(
    /^pip install: the package index cannot be reached: check the network and pip's configuration \(ERROR: /,
  );
});

test('an installation that takes too long ends', async () => {
  await expect(install(SMALL, {}, 1)).rejects.toThrow(/^pip install: not finished after /);
});
