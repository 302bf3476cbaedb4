import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { startOf } from '../lib/processes.ts';
import { findDevServer, removeServerRecord, writeServerRecord } from './server-record.ts';

let databaseFile: string;
let recordFile: string;

/** The record of this process, which is running. */
beforeEach(async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-record-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  databaseFile = path.join(folder, 'temporal.db');
  recordFile = path.join(folder, 'server.json');
  const start = (await startOf(process.pid)) ?? '';
  await writeServerRecord({ pid: process.pid, start, databaseFile, port: 7233, program: 'temporal 1', settings: [] });
});

async function findAfter(changes: object): Promise<{ pid: number | undefined; reasons: string[] }> {
  const record = JSON.parse(await readFile(recordFile, 'utf8')) as object;
  await writeFile(recordFile, JSON.stringify({ ...record, ...changes }));
  const reasons: string[] = [];
  const found = await findDevServer(databaseFile, (reason) => reasons.push(reason));
  return { pid: found?.pid, reasons };
}

test('a running server is found by its record, until that is removed', async () => {
  expect(await findAfter({})).toEqual({ pid: process.pid, reasons: [] });
  await removeServerRecord(databaseFile);
  expect(await findDevServer(databaseFile)).toBeUndefined();
});

test('a process that has got the id of an ended server is not that server', async () => {
  const start = (await startOf(process.ppid)) ?? '';
  expect(await findAfter({ start })).toEqual({ pid: undefined, reasons: [] });
});

test.each([
  ['a machine or container that is another one', { scope: 'of another' }, 'it is from another machine or container'],
  ['a folder that was copied', { databaseFile: '/elsewhere/temporal.db' }, 'it belongs to /elsewhere/temporal.db'],
  ['a write that was damaged', { port: undefined }, 'it is damaged'],
])('a record from %s is ignored with the reason', async (_, changes, reason) => {
  const { pid, reasons } = await findAfter(changes);
  expect(pid).toBeUndefined();
  expect(reasons).toEqual([expect.stringContaining(`${recordFile} is ignored: ${reason}`)]);
});
