import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** The root of this checkout. */
export const ROOT = fileURLToPath(new URL('../../..', import.meta.url));

/** A fenced block of a guide. */
export interface Block {
  /** The file and the line where it begins, as an editor opens it. */
  place: string;
  /** The info string of its fence: `sh`, `json`; empty if it has none. */
  language: string;
  text: string;
}

/** The guides, by their paths. `docs/api.md` is generated from the routes, with a test of its own. */
export function guides(): string[] {
  return ['README.md', 'examples/README.md', ...globSync('docs/*.md', { cwd: ROOT }).toSorted()].filter(
    (page) => page !== 'docs/api.md',
  );
}

const FENCED = /^( *)```(.*)\n([^]*?)^\1```$/gm;

/** The fenced blocks of a guide, in order; those in a list without their indentation. */
export function blocksOf(page: string): Block[] {
  const content = readFileSync(path.join(ROOT, page), 'utf8');
  return [...content.matchAll(FENCED)].map(({ index, 1: indent = '', 2: language = '', 3: text = '' }) => ({
    place: `${page}:${content.slice(0, index).split('\n').length}`,
    language,
    text: text.replaceAll(new RegExp(`^${indent}`, 'gm'), ''),
  }));
}
