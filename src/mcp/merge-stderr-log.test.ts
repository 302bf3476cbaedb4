import { pino } from 'pino';
import { expect, test } from 'vitest';
import { StderrLog } from './merge-stderr-log.ts';

test('a program that says too much is heard in part, and its silence is told of', () => {
  const logged: string[] = [];
  let now = 0;
  const log = new StderrLog(pino({}, { write: (line) => void logged.push(JSON.parse(line).msg) }), () => now);
  const say = (count: number): void => {
    for (let n = 0; n < count; n++) log.push(Buffer.from(`line ${n}\n`));
  };
  say(103);
  expect(logged).toHaveLength(100);
  now = 10_000;
  say(2);
  expect(logged.slice(100)).toEqual(['3 more lines were left out', 'line 0', 'line 1']);
  say(100);
  log.end();
  expect(logged.slice(-2)).toEqual(['line 97', '2 more lines were left out']);
});
