import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { isFree, keptPort } from '../../test/support/kept-port.ts';
import { commandLineOf, isEnding } from './processes.ts';

test.runIf(process.platform === 'linux')('a process that ends has its port until it has ended', async () => {
  const port = await keptPort();
  // It takes a while to free so much memory, before the port.
  const code = `
    const memory = Buffer.alloc(300_000_000, 1);
    require('net').createServer().listen(${port}, '127.0.0.1', () => console.log('listens', memory.length));`;
  const child = spawn(process.execPath, ['-e', code], { stdio: ['ignore', 'pipe', 'inherit'] });
  const { pid = 0 } = child;
  await once(child.stdout, 'data');
  expect(await isEnding(pid)).toBe(false);
  child.kill('SIGKILL');
  while ((await commandLineOf(pid)) !== '' || (await isEnding(pid))) await sleep(1);
  expect(await isFree(port)).toBe(true);
});
