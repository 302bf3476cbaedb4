import { chmod, mkdir, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { everturn } from '../support/command-line.ts';
import { ServerProcess } from '../support/server-process.ts';

/** The files in a folder, and the folder itself, that other users may read, write or enter. */
async function openTo(folder: string): Promise<string[]> {
  const names = ['', ...(await readdir(folder, { recursive: true }))];
  const modes = await Promise.all(names.map(async (name) => (await stat(path.join(folder, name))).mode & 0o777));
  return names.flatMap((name, at) => ((modes[at]! & 0o077) === 0 ? [] : [`${name} ${modes[at]!.toString(8)}`]));
}

async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-folder-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

test('nothing in the data folder of a server is accessible to other users, whatever its permissions were before', async () => {
  const dataDir = path.join(await temporaryFolder(), 'data');
  await mkdir(path.join(dataDir, 'blobs', 'ses_1'), { recursive: true });
  for (const folder of ['.', 'blobs', 'blobs/ses_1']) await chmod(path.join(dataDir, folder), 0o755);
  await writeFile(path.join(dataDir, 'blobs', 'ses_1', 'old'), 'said before', { mode: 0o644 });
  await writeFile(path.join(dataDir, 'lock'), '', { mode: 0o644 });
  const server = await ServerProcess.prepare(dataDir, {});
  await server.start();
  try {
    expect(await readdir(path.join(dataDir, 'temporal'))).toContain('temporal.db');
    expect(await readdir(dataDir)).toContain('catalog.db');
    expect(await openTo(dataDir)).toEqual([]);
  } finally {
    await server.stop();
  }
  expect(await openTo(dataDir)).toEqual([]);
});

test('a folder that is created for the first key is inaccessible to other users too', async () => {
  const dataDir = path.join(await temporaryFolder(), 'data');
  expect(await everturn(['keys', 'create', 'ann'], { EVERTURN_DATA: dataDir })).toMatchObject({ code: 0 });
  expect(await openTo(dataDir)).toEqual([]);
});

test('a server whose blobs cannot be written does not start, and says why', async () => {
  const dataDir = path.join(await temporaryFolder(), 'data');
  await mkdir(dataDir);
  await writeFile(path.join(dataDir, 'blobs'), 'not a folder');
  const server = await ServerProcess.prepare(dataDir, {});
  await expect(server.start()).rejects.toThrow(/the blobs cannot be written; check EVERTURN_DATA: EEXIST/);
});
