import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { DataDirInUseError, lockDataDir } from './data-dir-lock.ts';
import { StartupError } from './errors.ts';

async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-lock-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

test('a data folder belongs to one Everturn at a time', async () => {
  const dataDir = await temporaryFolder();
  const unlock = lockDataDir(dataDir);
  expect(() => lockDataDir(dataDir)).toThrow(DataDirInUseError);
  expect(() => lockDataDir(dataDir)).toThrow(new RegExp(`${dataDir}.*EVERTURN_DATA`));
  unlock();
  lockDataDir(dataDir)();
});

test('a folder that cannot be locked is named with its setting', async () => {
  const dataDir = await temporaryFolder();
  await mkdir(path.join(dataDir, 'lock'));
  expect(() => lockDataDir(dataDir)).toThrow(StartupError);
  expect(() => lockDataDir(dataDir)).toThrow(`EVERTURN_DATA: ${dataDir} cannot be locked`);
});

test('the lock of another process is released when the process is killed', async () => {
  const dataDir = await temporaryFolder();
  const script = `
    import { lockDataDir } from ${JSON.stringify(new URL('data-dir-lock.ts', import.meta.url))};
    lockDataDir(${JSON.stringify(dataDir)});
    console.log('locked');
    setInterval(() => {}, 60_000);
  `;
  const holder = spawn(process.execPath, ['--input-type=module', '--eval', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  onTestFinished(() => void holder.kill('SIGKILL'));
  await once(holder.stdout, 'data');
  expect(() => lockDataDir(dataDir)).toThrow(DataDirInUseError);

  const exit = once(holder, 'exit');
  holder.kill('SIGKILL');
  await exit;
  lockDataDir(dataDir)();
});
