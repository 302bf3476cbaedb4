import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { expect, onTestFinished, test } from 'vitest';
import { isAlive } from '../../test/support/is-alive.ts';
import { killAtEnd } from '../../test/support/reaper.ts';
import { ProgramRecords } from './program-records.ts';

const log = pino({ enabled: false });

async function makeDataDir(): Promise<string> {
  const dataDir = await mkdtemp(path.join(tmpdir(), 'everturn-programs-'));
  onTestFinished(() => rm(dataDir, { recursive: true }));
  return dataDir;
}

/** A program in a group of its own that does not end with its input. */
async function startProgram(): Promise<number> {
  const child = killAtEnd(spawn('sleep', ['1000'], { detached: true, stdio: 'ignore' }));
  onTestFinished(() => void child.kill('SIGKILL'));
  await once(child, 'spawn');
  return child.pid ?? 0;
}

const filesIn = (dataDir: string) => readdir(path.join(dataDir, 'programs'));

/** Changes the only record, as if another process had written it. */
async function change(dataDir: string, to: (record: Record<string, unknown>) => object): Promise<string> {
  const [name = ''] = await filesIn(dataDir);
  const file = path.join(dataDir, 'programs', name);
  await writeFile(file, JSON.stringify(to(JSON.parse(await readFile(file, 'utf8')) as Record<string, unknown>)));
  return file;
}

/** The id of a process that has ended, with another start: one that no process with this id had. */
const DEAD = { pid: process.pid, start: 'long ago' };

test('a program is written down until it has ended', async () => {
  const dataDir = await makeDataDir();
  const forget = await (await ProgramRecords.open(dataDir, log)).add(await startProgram(), undefined);
  expect(await filesIn(dataDir)).toHaveLength(1);
  await forget();
  expect(await filesIn(dataDir)).toEqual([]);
});

test('the programs of a process that runs are left alone', async () => {
  const dataDir = await makeDataDir();
  const pid = await startProgram();
  await (await ProgramRecords.open(dataDir, log)).add(pid, undefined);
  await ProgramRecords.open(dataDir, log);
  expect(isAlive(pid)).toBe(true);
  expect(await filesIn(dataDir)).toHaveLength(1);
});

test('a program whose owner no longer runs is ended by the next process, with its folder', async () => {
  const dataDir = await makeDataDir();
  const pid = await startProgram();
  const folder = path.join(dataDir, 'cwd');
  await mkdir(folder);
  await (await ProgramRecords.open(dataDir, log)).add(pid, folder);
  // The id of the owner may have been given to another process, here to this one.
  await change(dataDir, (record) => ({ ...record, owner: DEAD }));
  await ProgramRecords.open(dataDir, log);
  await expect.poll(() => isAlive(pid)).toBe(false);
  expect(await filesIn(dataDir)).toEqual([]);
  expect(await readdir(dataDir)).not.toContain('cwd');
});

test('a process that has got the id of such a program is not ended', async () => {
  const dataDir = await makeDataDir();
  const pid = await startProgram();
  await (await ProgramRecords.open(dataDir, log)).add(pid, undefined);
  await change(dataDir, (record) => ({ ...record, owner: DEAD, leader: { pid, start: 'long ago' } }));
  await ProgramRecords.open(dataDir, log);
  expect(isAlive(pid)).toBe(true);
  expect(await filesIn(dataDir)).toEqual([]);
});

test('a record of another container has no effect here, and is deleted after 30 days', async () => {
  const dataDir = await makeDataDir();
  const pid = await startProgram();
  await (await ProgramRecords.open(dataDir, log)).add(pid, undefined);
  const file = await change(dataDir, (record) => ({ ...record, owner: DEAD, namespace: 'pid:[1]' }));
  await ProgramRecords.open(dataDir, log);
  expect(await filesIn(dataDir)).toHaveLength(1);
  const old = Date.now() / 1000 - 31 * 86_400;
  await utimes(file, old, old);
  await ProgramRecords.open(dataDir, log);
  expect(await filesIn(dataDir)).toEqual([]);
  expect(isAlive(pid)).toBe(true);
});

test('a record that cannot be read is deleted', async () => {
  const dataDir = await makeDataDir();
  await mkdir(path.join(dataDir, 'programs'));
  await writeFile(path.join(dataDir, 'programs', 'x.json'), '{"leader":');
  await ProgramRecords.open(dataDir, log);
  expect(await filesIn(dataDir)).toEqual([]);
});
