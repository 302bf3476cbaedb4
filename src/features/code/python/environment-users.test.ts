import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { pidScope, startOf } from '../../../lib/processes.ts';
import { removeUnusedBeside, useEnvironment } from './environment-users.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-kernels-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
});

const LATER = Date.now() + 86_400_000;

function environment(letter: string): string {
  const made = path.join(folder, letter.repeat(32));
  mkdirSync(path.join(made, 'bin'), { recursive: true });
  return made;
}

test('an environment is removed when no process uses it, and no other file is', async () => {
  const [current, used, unused] = ['a', 'b', 'c'].map(environment);
  await useEnvironment(used ?? '');
  writeFileSync(path.join(folder, 'else'), '');
  await removeUnusedBeside(current ?? '', LATER);
  expect(readdirSync(folder)).toEqual([path.basename(current ?? ''), path.basename(used ?? ''), 'else']);
  expect(existsSync(unused ?? '')).toBe(false);
});

test('an environment that was just made is kept: its builder has not recorded yet that it uses it', async () => {
  const [current, young] = ['a', 'b'].map(environment);
  await removeUnusedBeside(current ?? '');
  expect(existsSync(young ?? '')).toBe(true);
});

test('an environment is used as long as any of its processes runs', async () => {
  const [current, other] = ['a', 'b'].map(environment);
  const child = spawn('sleep', ['600']);
  await once(child, 'spawn');
  const users = path.join(other ?? '', '.users');
  mkdirSync(users);
  const { pid = 0 } = child;
  const record = { pid, start: await startOf(pid), scope: await pidScope() };
  writeFileSync(path.join(users, 'one.json'), JSON.stringify(record));
  writeFileSync(path.join(users, 'dead.json'), JSON.stringify({ ...record, start: 'another start' }));
  await removeUnusedBeside(current ?? '', LATER);
  expect(readdirSync(users)).toContain('one.json');
  child.kill('SIGKILL');
  await once(child, 'exit');
  await removeUnusedBeside(current ?? '', LATER);
  expect(existsSync(other ?? '')).toBe(false);
});
