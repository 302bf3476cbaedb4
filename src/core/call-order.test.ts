import { expect, test } from 'vitest';
import { heldCalls } from './call-order.ts';

/** `r1` reads on server 1, `w1` writes there; `p` is a call of a server whose calls run at once. */
function callsOf(text: string) {
  return text.split(' ').map((name, index) => {
    const [kind, server = ''] = name;
    const order = { server, ...(kind === 'r' && { isReadOnly: true as const }) };
    return { name, source: { index, run: { ...(kind !== 'p' && { order }) } } };
  });
}

const names = (calls: Iterable<{ name: string; source: { index: number } }>) =>
  Array.from(calls, ({ name, source }) => `${name}@${source.index}`).join(' ');

test.each([
  ['p p p', ''],
  ['r1 r1 r1', ''],
  ['w1 r1 r1', 'r1@1 r1@2'],
  ['r1 r1 w1 r1', 'w1@2 r1@3'],
  ['w1 w1', 'w1@1'],
  ['w1 r2 w2 p r1', 'w2@2 r1@4'],
])('of %j, these may not begin yet: %j', (text, held) => {
  expect(names(heldCalls(callsOf(text)))).toBe(held);
  expect(names(heldCalls(callsOf(text).toReversed()))).toBe(held);
});

test.each([
  ['w1 w1', 'w1', ''],
  ['w1 r1 w1', 'r1', 'w1@2'],
  ['r1 r1 w1 r1 p', 'r1', 'w1@2 r1@3'],
])('of %j, these are held for as long as %s waits: %j', (text, waiting, held) => {
  const calls = callsOf(text);
  const waits = calls.findLast(({ name, source }) => name === waiting && source.index < 2);
  expect(names(heldCalls(calls, (call) => call !== waits))).toBe(held);
});
