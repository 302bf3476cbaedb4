import { execFile } from 'node:child_process';
import { promisify, stripVTControlCharacters } from 'node:util';
import { expect, test } from 'vitest';

const run = promisify(execFile);

const PROGRAM = `
  import { createLogger } from ${JSON.stringify(new URL('logger.ts', import.meta.url))};
  import { withLogContext } from ${JSON.stringify(new URL('log-context.ts', import.meta.url))};
  const log = createLogger({ logLevel: 'info' });
  withLogContext({ requestId: 'req_1', sessionId: 'ses_1', turnId: 'turn_1' }, () => {
    log.warn({ tool: 'look', token: 'of-a-user' }, 'a tool \\u001b[2J failed');
    log.warn({ err: new Error('at redis://:pass-word@host') }, 'with an error');
  });
`;

test('a log that is not read on a terminal is JSON, one object per line', async () => {
  const { stderr } = await run(process.execPath, ['--input-type=module', '--eval', PROGRAM]);
  const lines = stderr
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as object);
  expect(lines).toMatchObject([
    { level: 40, requestId: 'req_1', sessionId: 'ses_1', turnId: 'turn_1', tool: 'look', token: '[hidden]' },
    { level: 40, err: { message: 'at redis://[hidden]@host' }, msg: 'with an error' },
  ]);
});

// Only Linux's `script` takes a command.
test.runIf(process.platform === 'linux')(
  'on a terminal the log is readable lines with the same content hidden',
  async () => {
    const command = '"$NODE" --input-type=module --eval "$PROGRAM"';
    const { stdout } = await run('script', ['--quiet', '--return', '--command', command, '/dev/null'], {
      env: { ...process.env, SHELL: '/bin/sh', NODE: process.execPath, PROGRAM },
    });
    const [first = '', ...rest] = stripVTControlCharacters(stdout).split('\r\n');
    expect(first).toMatch(
      /^\[\d\d:\d\d:\d\d\.\d{3}\] WARN: a tool \\x1b\[2J failed \{"turnId":"turn_1","tool":"look","token":"\[hidden\]"\}$/,
    );
    expect(rest.join('\n')).toMatch(/ WARN: with an error .*\n +err: \{\n[^]*at redis:\/\/\[hidden\]@host\n +at /);
    expect(stdout).not.toMatch(/pass-word|of-a-user|ses_1|req_1/);
  },
);
