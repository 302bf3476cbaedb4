import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { isFree, keptPort } from '../../test/support/kept-port.ts';
import { commandLineOf } from '../../test/support/own-processes.ts';
import { endGroup, isRunning, leaversOf, memoryOf, startOf } from './processes.ts';

test.runIf(process.platform === 'linux')('a process that ends has its port until it has ended', async () => {
  const port = await keptPort();
  // It takes a while to free so much memory, before the port.
  const code = `
    const memory = Buffer.alloc(300_000_000, 1);
    require('net').createServer().listen(${port}, '127.0.0.1', () => console.log('listens', memory.length));`;
  const child = spawn(process.execPath, ['-e', code], { stdio: ['ignore', 'pipe', 'inherit'] });
  const { pid = 0 } = child;
  await once(child.stdout, 'data');
  const started = { pid, start: await startOf(pid) };
  expect(await isRunning(started)).toBe(true);
  child.kill('SIGKILL');
  while (await isRunning(started)) await sleep(1);
  expect(await isFree(port)).toBe(true);
});

test.runIf(process.platform === 'linux')('the descendants of a group that have left it belong to it', async () => {
  const grandchild = `require('node:child_process').spawn('sleep', ['1000'], { detached: true, stdio: 'ignore' })`;
  const child = spawn(process.execPath, ['-e', `console.log(${grandchild}.pid); setInterval(() => {}, 1000);`], {
    detached: true,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const { pid = 0 } = child;
  const [line] = (await once(child.stdout, 'data')) as [Buffer];
  const left = Number(line.toString());
  onTestFinished(() => endGroup(left, 0, []));
  expect(await leaversOf(pid)).toEqual([{ pid: left, start: await startOf(left) }]);
  const apart = await memoryOf(new Set([pid, left]));
  const together = await memoryOf(new Set([pid]));
  expect(apart.get(left)).toBeGreaterThan(0);
  expect(together.get(pid)).toBeGreaterThan(apart.get(pid) ?? Infinity);
  await endGroup(pid, 5_000);
  expect(await commandLineOf(left)).toBe('');
});
