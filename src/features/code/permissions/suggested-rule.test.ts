import { expect, test } from 'vitest';
import type { PermissionAction } from './permission-action.ts';
import { suggestedRule } from './suggested-rule.ts';

const shell = (text: string, isOpaque = false): PermissionAction => ({
  type: 'shell',
  text,
  isOpaque,
  commands: [text],
});

test.each([
  ['git  push origin', 'git push *'],
  ['git push', 'git push'],
  ['git -C a push', 'git -C a push'],
  ['ls -l', 'ls *'],
  ['ls', 'ls'],
  ['"my tool" a', '"my tool" a'],
  ['ls *.py', 'ls *'],
])('for the command %j the rule is %j', (command, suggested) => {
  expect(suggestedRule(shell(command))).toEqual({ action: 'shell', command: suggested });
});

test('an opaque command is its own rule', () => {
  expect(suggestedRule(shell('cat a > b', true))).toEqual({ action: 'shell', command: 'cat a > b' });
});

test('no rule is suggested that matches more than its text says, or that cannot be stored', () => {
  for (const text of ['*', '?? a', '* > b']) expect(suggestedRule(shell(text, true))).toBeNull();
  expect(suggestedRule(shell(`echo ${'a'.repeat(70_000)} > b`, true))).toBeNull();
  expect(suggestedRule({ type: 'file_write', path: 'a*' })).toBeNull();
  expect(suggestedRule({ type: 'file_write', path: '.' })).toBeNull();
  expect(suggestedRule({ type: 'tool', server: 'lab', name: '*' })).toBeNull();
});

test('a file is suggested as it is resolved, a tool with its server', () => {
  expect(suggestedRule({ type: 'file_edit', path: '/workspace/a/../b' })).toEqual({ action: 'file_edit', path: 'b' });
  expect(suggestedRule({ type: 'file_read', path: '../etc/a' })).toEqual({ action: 'file_read', path: '/etc/a' });
  expect(suggestedRule({ type: 'tool', server: 'lab', name: 'add' })).toEqual({ action: 'tool', tool: 'lab/add' });
  expect(suggestedRule({ type: 'code' })).toEqual({ action: 'code' });
});
