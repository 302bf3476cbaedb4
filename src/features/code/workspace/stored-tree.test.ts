import { expect, test } from 'vitest';
import { StoredTree } from './stored-tree.ts';
import type { WorkspaceEntry } from './workspace-list.ts';

const CONTENT = { bytes: 1, modifiedAt: 0, sha256: 'a', blobs: ['a'] };

const file = (path: string): WorkspaceEntry => ({ kind: 'file', path, isExecutable: true, ...CONTENT });
const folder = (path: string): WorkspaceEntry => ({ kind: 'folder', path });
const link = (path: string, target: string): WorkspaceEntry => ({ kind: 'link', path, target });

const tree = new StoredTree([
  file('a'),
  folder('data'),
  file('data/b'),
  link('data/up', '..'),
  link('absolute', '/workspace/data'),
  link('loop', 'loop'),
  link('outside', '../secret'),
  link('dangling', 'data/gone'),
]);

const problem = (work: () => unknown): unknown => {
  try {
    return work();
  } catch (error) {
    return error instanceof Error && 'code' in error ? error.code : error;
  }
};

test.each([
  ['a', 'a'],
  ['/workspace/data/../a', 'a'],
  ['./data//b', 'data/b'],
  ['absolute/b', 'data/b'],
  ['absolute/up/a', 'a'],
])('the path %s is that of a file', (path, found) => {
  expect(tree.file(path).path).toBe(found);
});

test.each([
  ['../a', 'invalid_path'],
  ['absolute/up/../a', 'invalid_path'],
  ['/etc/passwd', 'invalid_path'],
  ['outside', 'invalid_path'],
  ['loop', 'invalid_path'],
  ['~/a', 'invalid_path'],
  ['a\0', 'invalid_path'],
  ['n'.repeat(256), 'invalid_path'],
  ['', 'invalid_path'],
  ['.', 'not_a_file'],
  ['absolute', 'not_a_file'],
  ['dangling', 'not_found'],
  ['a/b', 'not_found'],
])('the path %s is not that of a file: %s', (path, code) => {
  expect(problem(() => tree.file(path))).toBe(code);
});

test('a file is written with its folders, and through links', () => {
  const written = tree.with('new/deep/c', CONTENT).with('absolute/d', CONTENT).with('dangling', CONTENT);
  const paths = written.entries.map(({ path }) => path);
  expect(paths.slice(tree.entries.length)).toEqual(['new', 'new/deep', 'new/deep/c', 'data/d', 'data/gone']);
  expect(tree.with('a', CONTENT).file('a')).toMatchObject({ isExecutable: true });
  expect(tree.with('c', CONTENT).file('c')).toMatchObject({ isExecutable: false });
});

test.each([
  ['a/b', 'invalid_path'],
  ['data', 'not_a_file'],
  ['.', 'not_a_file'],
  ['outside', 'invalid_path'],
])('no file is written at %s: %s', (path, code) => {
  expect(problem(() => tree.with(path, CONTENT))).toBe(code);
});

test('a removed file is gone, and what else leads there leads nowhere', () => {
  const linked = new StoredTree([...tree.entries, link('to-b', 'data/b')]);
  const removed = linked.without('absolute/b');
  expect(removed.entries).toHaveLength(linked.entries.length - 1);
  expect(problem(() => removed.file('to-b'))).toBe('not_found');
  expect(removed.list('.', { isRecursive: true }).map(({ path }) => path)).toEqual([
    'a',
    'absolute',
    'data',
    'data/up',
  ]);
});

test('the name of a file is free, or that of the same content', () => {
  const placed = tree.with('b.csv', CONTENT).with('b (2).csv', { ...CONTENT, sha256: 'b' });
  expect(['new', 'data', 'loop', 'a'].map((name) => placed.freeName(name, 'b'))).toEqual([
    'new',
    'data (2)',
    'loop (2)',
    'a (2)',
  ]);
  expect(['a', 'b', 'c'].map((sha256) => placed.freeName('b.csv', sha256))).toEqual([
    'b.csv',
    'b (2).csv',
    'b (3).csv',
  ]);
});
