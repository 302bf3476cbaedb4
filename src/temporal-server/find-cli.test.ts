import path from 'node:path';
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { pino } from 'pino';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { findTemporalBinary } from './find-cli.ts';
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

/** Searches with a PATH of folders below `root`. */
function find(...pathFolders: string[]): Promise<string> {
  return findIn(pathFolders, false);
}

/** Downloads by the SDK go to a proxy that does not exist. */
async function findIn(pathFolders: string[], mayDownload: boolean): Promise<string> {
  const env = {
    PATH: pathFolders.map((folder) => path.join(root, folder)).join(path.delimiter),
    HTTPS_PROXY: `http://127.0.0.1:${await freePort()}`,
  };
  const log = pino({ base: null }, { write: (line: string) => void messages.push(line) });
  return findTemporalBinary({ cacheDir, env, mayDownload, log });
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
  expect(text).not.toContain('download by the Temporal SDK');
  expect(text).toContain('about two minutes');
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

test('if no program can be found or installed, one error lists the remedies', async () => {
  const error = await find('one').catch((error: unknown) => error);
  expect(error).toBeInstanceOf(ProvisionError);
  expect(String(error)).toContain('https://docs.temporal.io/cli');
  expect(String(error)).toContain(cachedFile());
  expect(String(error)).toContain('https://go.dev/dl');
  expect(String(error)).toContain('TEMPORAL_ADDRESS');
  expect(String(error)).toContain('EVERTURN_DOWNLOAD_TEMPORAL=true');
  expect(String(error)).not.toContain('download by the Temporal SDK');

  await writeGo('one/go', 'echo "go: no space left on device" >&2', 'exit 1');
  await expect(find('one')).rejects.toThrow(/build with Go: go install: go: no space left on device/);
});

test('the program is downloaded only if permitted, because its digest is not checked', async () => {
  const error = await findIn([], true).catch((error: unknown) => error);
  expect(String(error)).toMatch(/download by the Temporal SDK: .*Connection refused/);
  expect(String(error)).not.toContain('EVERTURN_DOWNLOAD_TEMPORAL');
});
