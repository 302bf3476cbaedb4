import { existsSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { WRONG_CHANGES } from '../mutants/wrong-changes.ts';

test.each(WRONG_CHANGES)('the wrong change "$rule" can be made in $file', ({ file, text, becomes, test: by }) => {
  expect(readFileSync(file, 'utf8').split(text), `how often ${file} has the text`).toHaveLength(2);
  expect(becomes).not.toBe(text);
  expect(existsSync(by), by).toBe(true);
});
