import { existsSync, globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { blocksOf, guides, ROOT } from '../support/guides/blocks.ts';
import {
  checkOnOwnServer,
  checkOnSharedServer,
  ELSEWHERE,
  prepareReaders,
  withOwnServer,
} from '../support/guides/check-page.ts';

prepareReaders();

const own = withOwnServer();
const shared = guides().filter((page) => !own.includes(page));

test.each(shared)('%s: each block does what it prints, after npm start', checkOnSharedServer);

// The other pages that start a server: guides-with-servers.test.ts.
test.each(['README.md'])('%s: each block does what it prints, on the server that it starts', checkOnOwnServer, 300_000);

test('each block that another test runs is there, and so is that test', () => {
  const blocks = guides().flatMap((page) => blocksOf(page));
  for (const { block, test: file, words } of ELSEWHERE) {
    expect(blocks.filter(({ text }) => text.startsWith(block)).length, block).toBe(1);
    expect(readFileSync(path.join(ROOT, file), 'utf8'), file).toContain(words);
  }
});

test('the guides name examples that exist', () => {
  const named = guides().flatMap(
    (page) => readFileSync(path.join(ROOT, page), 'utf8').match(/examples\/[\w./-]+/g) ?? [],
  );
  expect(named.length).toBeGreaterThan(0);
  expect(named.filter((file) => !existsSync(path.join(ROOT, file.replace(/\.$/, ''))))).toEqual([]);
});

test('examples/README.md names all examples', () => {
  const readme = readFileSync(path.join(ROOT, 'examples/README.md'), 'utf8');
  const named = new Set([...readme.matchAll(/[\w-]+\.(?:ts|py)/g)].map(([name]) => name));
  const files = globSync('*.{ts,py}', { cwd: path.join(ROOT, 'examples') });
  expect(files.filter((file) => !named.has(file))).toEqual([]);
});
