import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { StartupError } from './errors.ts';
import { secretVariable } from './secret-variable.ts';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'everturn-secrets-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

function written(content: string): string {
  const file = path.join(folder, 'secret');
  writeFileSync(file, content);
  return file;
}

test.each([
  ['in the variable', () => ({ KEY: 'a secret' }), 'a secret'],
  ['in a file', () => ({ KEY_FILE: written('a secret') }), 'a secret'],
  ['in a file, as editors and echo write it', () => ({ KEY_FILE: written('a secret\n') }), 'a secret'],
  ['in a file, while the variable is empty', () => ({ KEY: '', KEY_FILE: written('a secret\r\n') }), 'a secret'],
  ['absent', () => ({ KEY: '', KEY_FILE: '' }), undefined],
])('a secret is %s', (_where, env, value) => {
  expect(secretVariable(env(), 'KEY')).toBe(value);
});

test('a secret that is set twice, or whose file has none, stops the start without showing it', () => {
  const twice = () => secretVariable({ KEY: 'value-1', KEY_FILE: written('value-2') }, 'KEY');
  expect(twice).toThrow(new StartupError('KEY and KEY_FILE are both set: set only one of them'));
  expect(() => secretVariable({ KEY_FILE: written('\n') }, 'KEY')).toThrow(/^KEY_FILE: .*secret is empty$/);
  expect(() => secretVariable({ KEY_FILE: '/no/such/file' }, 'KEY')).toThrow(
    /^KEY_FILE must be a file that this process can read: ENOENT.*\/no\/such\/file/,
  );
});
