import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { expect, onTestFinished, test } from 'vitest';

/** Runs a program with `body`. */
function run(body: string): { child: ChildProcess; output: () => string } {
  const program = `
    import { mock } from 'node:test';
    import { once } from 'node:events';
    import { runUntilSignal } from ${JSON.stringify(new URL('process.ts', import.meta.url))};
    import { createLogger } from ${JSON.stringify(new URL('../telemetry/logger.ts', import.meta.url))};
    const log = createLogger({ logLevel: 'info' });
    const running = { finished: new Promise(() => {}), stop: async () => log.info('stops') };
    // As an open port does.
    setInterval(() => {}, 60_000);
    const base = { log, shutdownSeconds: 20, greeting: () => 'listens' };
    ${body}
    process.exit();
  `;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program], {
    stdio: ['pipe', 'pipe', 'pipe', 'ipc'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (data: Buffer) => (output += data.toString()));
  return { child, output: () => output };
}

const messages = (output: string): string[] =>
  [...output.matchAll(/"msg":"([^"]*)"/g)].map(([, message = '']) => message);

test('a signal stops what is running, and the log says when that begins and ends', async () => {
  const { child, output } = run(`await runUntilSignal({ ...base, start: async () => running });`);
  await expect.poll(output).toBe('listens');
  child.kill('SIGTERM');
  expect(await once(child, 'exit')).toEqual([0, null]);
  expect(messages(output())).toEqual([
    'SIGTERM: stopping; a second signal ends the process at once',
    'stops',
    expect.stringMatching(/^stopped after \d+\.\d s$/),
  ]);
});

test.each([
  ['is given up', `signal.addEventListener('abort', () => reject(signal.reason))`],
  ['is completed first', `signal.addEventListener('abort', () => resolve(running))`],
])('a start that is interrupted %s, then the process ends without a greeting', async (how, onAbort) => {
  const { child, output } = run(`await runUntilSignal({ ...base, start: (signal) => new Promise((resolve, reject) => {
    ${onAbort};
    log.info('starts');
  })});`);
  await expect.poll(output).toContain('starts');
  child.kill('SIGINT');
  expect(await once(child, 'exit')).toEqual([0, null]);
  const stops = how === 'is given up' ? [] : ['stops'];
  expect(messages(output())).toEqual([
    'starts',
    'SIGINT: stopping; a second signal ends the process at once',
    ...stops,
    expect.stringMatching(/^stopped after/),
  ]);
  expect(output()).not.toContain('listens');
});

test('a shutdown that does not end is ended when its time is used up', async () => {
  const { child, output } = run(`
    const hanging = { ...running, stop: () => new Promise(() => {}) };
    mock.timers.enable({ apis: ['setTimeout'] });
    process.stdin.on('data', (ms) => { mock.timers.tick(Number(ms)); log.info('still there'); });
    await runUntilSignal({ ...base, start: async () => hanging });
  `);
  await expect.poll(output).toBe('listens');
  child.kill('SIGTERM');
  await expect.poll(output).toContain('SIGTERM');
  child.stdin?.write('44999');
  await expect.poll(output).toContain('still there');
  child.stdin?.write('1');
  expect(await once(child, 'exit')).toEqual([1, null]);
  expect(messages(output()).at(-1)).toBe('not stopped after 45 s: the process exits');
});

test('a second signal ends the process at once', async () => {
  const { child, output } = run(`
    const hanging = { ...running, stop: () => new Promise(() => {}) };
    await runUntilSignal({ ...base, start: async () => hanging });
  `);
  await expect.poll(output).toBe('listens');
  child.kill('SIGTERM');
  await expect.poll(output).toContain('SIGTERM');
  child.kill('SIGINT');
  expect(await once(child, 'exit')).toEqual([130, null]);
});

test('a process whose output has lost its reader continues, and ends on SIGTERM', async () => {
  const { child, output } = run(`
    await runUntilSignal({
      ...base,
      start: async () => {
        log.info('starts');
        await once(process.stdin, 'data');
        log.info('to no reader');
        return running;
      },
      greeting: () => {
        // After the failure of the write.
        setImmediate(() => process.send('has greeted'));
        return 'to no reader';
      },
    });
  `);
  await expect.poll(output).toContain('starts');
  child.stdout?.destroy();
  child.stderr?.destroy();
  child.stdin?.write('go');
  expect(await Promise.race([once(child, 'message'), once(child, 'exit')])).toEqual(['has greeted', undefined]);
  child.kill('SIGTERM');
  expect(await once(child, 'exit')).toEqual([0, null]);
});
