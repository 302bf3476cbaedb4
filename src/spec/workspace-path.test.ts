import { expect, test } from 'vitest';
import { workspacePath } from './workspace-path.ts';

test.each([
  ['a.txt', 'a.txt'],
  ['./data//a.csv', 'data/a.csv'],
  ['x/../a.txt', 'a.txt'],
  ['/workspace/data/a.csv', 'data/a.csv'],
  ['a'.repeat(255), 'a'.repeat(255)],
  ['..a/...', '..a/...'],
])('%s is a file of the workspace', (path, expected) => {
  expect(workspacePath(path)).toBe(expected);
});

test.each([
  '',
  '.',
  '..',
  '../a',
  'a/../../b',
  '/etc/passwd',
  '/workspace',
  '/workspace/../tools/a',
  '/workspaces/a',
  'data/',
  'a\0b',
  'ä'.repeat(128),
  'a/'.repeat(2_048) + 'b',
])('%j is none', (path) => {
  expect(workspacePath(path)).toBeUndefined();
});
