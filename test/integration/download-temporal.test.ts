import { randomBytes } from 'node:crypto';
import { glob, mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { beforeEach, expect, onTestFinished, test, vi } from 'vitest';
import { listOwnProcesses } from '../support/own-processes.ts';
import { findTemporalBinary } from '../../src/temporal-server/find-cli.ts';
import { archiveWith, TemporalDownload, type Answer } from '../support/temporal-download.ts';

// The SDK's own download, from a server that stands in for Temporal's: a proxy leads the SDK to it, by TLS.

let root: string;
let messages: string[];
const log = pino({ base: null }, { write: (line: string) => void messages.push(line) });

beforeEach(async () => {
  messages = [];
  root = await mkdtemp(path.join(tmpdir(), 'everturn-download-'));
  onTestFinished(() => rm(root, { recursive: true, force: true }));
});

async function start(answer: Answer): Promise<TemporalDownload> {
  const download = await TemporalDownload.start(root, answer);
  onTestFinished(() => download.stop());
  return download;
}

const PROGRAM = `#!/bin/sh\necho 'temporal version 1.9.1 (Server 1.32.0, UI 2.54.1)'\n`;

function find(env: Record<string, string>): Promise<string> {
  return findTemporalBinary({ cacheDir: path.join(root, 'cache'), env, installers: ['sdk'], log });
}

test('the SDK downloads the CLI into the cache, of the version that is tested, and a line says what vouches for it', async () => {
  const download = await start(await archiveWith(root, PROGRAM));
  const file = await find(download.trustingEnv);
  expect(file).toBe(path.join(root, 'cache/bin/temporal'));
  expect(await readFile(file, 'utf8')).toBe(PROGRAM);
  expect(download.requests).toEqual([
    expect.stringMatching(/^https:\/\/temporal\.download\/cli\/v1\.9\.1\?arch=/),
    'https://temporal.download/archive.tar.gz',
  ]);
  expect(messages[0]).toMatch(/connecting for at most 10 s .* TLS alone vouches for the program/);
  expect(messages.join('')).toContain('installed Temporal in ');

  expect(await find({})).toBe(file);
  expect(download.requests).toHaveLength(2);
});

test('a download that is refused is given up at once, with its reason', async () => {
  const download = await start((_, response) => void response.writeHead(403).end());
  await expect(find(download.trustingEnv)).rejects.toThrow(
    /These attempts failed:\n- download by the Temporal SDK: .*403 Forbidden/,
  );
});

test('a server whose certificate is not trusted is refused', async () => {
  const download = await start(await archiveWith(root, PROGRAM));
  await expect(find(download.env)).rejects.toThrow(/download by the Temporal SDK: .*certificate/);
  expect(download.requests).toEqual([]);
});

/** Holds the clock, so that no test waits for the limit. Timers keep running, and polling does not advance it. */
function holdClock(): { advance: (ms: number) => void } {
  vi.setSystemTime(Date.now());
  onTestFinished(() => void vi.useRealTimers());
  return { advance: (ms) => void vi.setSystemTime(Date.now() + ms) };
}

test('a server that does not answer is given up after 10 s', async () => {
  const asked = Promise.withResolvers<void>();
  const download = await start(() => asked.resolve());
  const clock = holdClock();
  const failure = find(download.trustingEnv).catch((error: unknown) => String(error));
  await asked.promise;
  clock.advance(10_000);
  await expect.poll(() => messages.join('')).toContain('after 10 s');
  clock.advance(1);
  expect(await failure).toContain('download by the Temporal SDK: nothing was received for 10 s');
  await expect.poll(downloads).toEqual([]);
});

test('a download that stops halfway is given up after 10 s', async () => {
  // Of random text, which gzip compresses to half of it.
  const program = randomBytes(500_000).toString('hex');
  const download = await start(await archiveWith(root, program, 250_000));
  const clock = holdClock();
  const failure = find(download.trustingEnv).catch((error: unknown) => String(error));
  await expect.poll(async () => (await partialFiles())[0]).toBeGreaterThan(0);
  let ended = false;
  void failure.then(() => (ended = true));
  // The first time that it looks, it sees the half that has arrived, and waits for the rest.
  await expect.poll(() => (clock.advance(10_001), ended)).toBe(true);
  expect(await failure).toContain('download by the Temporal SDK: nothing was received for 10 s');
  await expect.poll(downloads).toEqual([]);
});

/** The processes that download. */
async function downloads(): Promise<string[]> {
  const commands = (await listOwnProcesses()).map(({ commandLine }) => commandLine);
  return commands.filter((command) => command.includes(root));
}

/** The sizes of files that are downloaded now. */
async function partialFiles(): Promise<number[]> {
  const files = await Array.fromAsync(glob(path.join(root, 'cache/bin/.install-*/*.downloading')));
  return Promise.all(files.map(async (file) => (await stat(file)).size));
}
