import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { replaceFolders } from './replace-folders.ts';

async function folder(): Promise<string> {
  const made = await mkdtemp(path.join(tmpdir(), 'everturn-folders-'));
  onTestFinished(() => rm(made, { recursive: true }));
  return made;
}

test('folders are replaced as a whole, and others are kept', async () => {
  const parent = await folder();
  await replaceFolders(
    parent,
    ['a', 'b'],
    [
      ['a/old', '1'],
      ['b/x', '2'],
    ],
  );
  await replaceFolders(parent, ['a'], [['a/new/y', '3']]);
  expect((await readdir(parent, { recursive: true })).toSorted()).toEqual(['a', 'a/new', 'a/new/y', 'b', 'b/x']);
  await replaceFolders(parent, ['b'], []);
  expect(await readdir(parent)).toEqual(['a']);
  expect(await readFile(path.join(parent, 'a/new/y'), 'utf8')).toBe('3');
});

test.each(['../x', 'a/../../x', 'a//x', '/x', './x'])('no file is written outside: %s', async (file) => {
  const root = await folder();
  await expect(replaceFolders(root, ['a'], [[file, '']])).rejects.toThrow('is no path of a file');
  expect(await readdir(root)).toEqual([]);
});
