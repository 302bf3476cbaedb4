import { expect, test } from 'vitest';
import { safeFileName } from './place-files.ts';

test.each([
  ['orders.csv', 'orders.csv'],
  ['../../etc/passwd', '.._.._etc_passwd'],
  ['a\0b', 'a_b'],
  ['..', 'file'],
  ['', 'file'],
  ['~', 'file'],
  ['\ud800', '\ufffd'],
])('the name %j of a file is %j in the workspace', (name, safe) => {
  expect(safeFileName({ name })).toBe(safe);
});

test('a long name is cut, and keeps its extension', () => {
  const name = safeFileName({ name: `${'ä'.repeat(300)}.csv` });
  expect(name).toMatch(/^ä+\.csv$/);
  expect(Buffer.byteLength(name)).toBeLessThan(200);
});
