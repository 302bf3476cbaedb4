import { expect, test } from 'vitest';
import type { RuleEffect, RulePattern } from '../../../spec/permission-rule.ts';
import { decisionByRules, type AppliedRule } from './decide-action.ts';
import type { PermissionAction } from './permission-action.ts';
import { READ_ONLY } from './read-only.ts';

const NOW = Date.parse('2026-11-21T10:00:00.000Z');

const rule = (effect: RuleEffect, pattern: RulePattern, more: Partial<AppliedRule> = {}): AppliedRule =>
  ({ effect, isOfAgent: false, ...pattern, ...more }) as AppliedRule;
const on = (effect: RuleEffect, command: string, more?: Partial<AppliedRule>) =>
  rule(effect, { action: 'shell', command }, more);
const shell = (text: string, more: { isOpaque?: boolean; commands?: string[] } = {}): PermissionAction => ({
  type: 'shell',
  text,
  isOpaque: false,
  commands: [text],
  ...more,
});
const decide = (action: PermissionAction, ...rules: AppliedRule[]) => decisionByRules(action, rules, NOW)?.decision;

test('among all rules that match, deny takes precedence over ask, and that over allow, in any order', () => {
  const [allow, ask, deny] = [on('allow', '*'), on('ask', 'rm *'), on('deny', 'rm -r*')];
  expect(decide(shell('ls'), allow, ask, deny)).toBe('allow');
  expect(decide(shell('rm f'), allow, ask, deny)).toBe('ask');
  expect(decide(shell('rm -rf f'), ask, deny, allow)).toBe('deny');
  expect(decide(shell('ls'), ask, deny)).toBeUndefined();
});

test('a rule counts until it expires', () => {
  const until = (expires_at: string) => on('allow', 'ls', { expires_at });
  expect(decide(shell('ls'), until('2026-11-21T10:00:00.001Z'))).toBe('allow');
  expect(decide(shell('ls'), until('2026-11-21T10:00:00.000Z'))).toBeUndefined();
});

test('a decision shows whether a rule of the agent matches', () => {
  const rules = [on('allow', 'git *', { isOfAgent: true }), on('allow', '*')];
  expect(decisionByRules(shell('git status'), rules, NOW)).toEqual({ decision: 'allow', isOfAgent: true });
  expect(decisionByRules(shell('ls'), rules, NOW)).toEqual({ decision: 'allow', isOfAgent: false });
});

test.each([
  ['git *', 'git status', true],
  ['git *', 'git', false],
  ['git *', ' git \t  status ', true],
  ['git  *', 'git status', true],
  ['echo "a  b"', 'echo  "a  b"', true],
  ['echo "a b"', 'echo "a  b"', false],
  ['ls ?', 'ls a', true],
  ['ls ?', 'ls ab', false],
  ['cat', 'cat a', false],
])('%j allows %j: %j', (pattern, command, isAllowed) => {
  expect(decide(shell(command), on('allow', pattern))).toBe(isAllowed ? 'allow' : undefined);
});

test('an opaque command is allowed by an equal rule or by *, and by none with other wildcards', () => {
  const piece = shell('cat a > b', { isOpaque: true });
  expect(decide(piece, on('allow', 'cat *'))).toBeUndefined();
  expect(decide(piece, on('allow', 'cat a > b'))).toBe('allow');
  expect(decide(piece, on('allow', '*'))).toBe('allow');
  expect(decide(shell('cat <<E\n a\nE', { isOpaque: true }), on('allow', 'cat <<E\n  a\nE'))).toBeUndefined();
});

test('what asks or denies concerns the commands inside what is opaque, and however words are quoted', () => {
  const script = shell('echo $(rm f)', { isOpaque: true, commands: ['echo', 'rm f'] });
  expect(decide(script, on('deny', 'rm *'))).toBe('deny');
  expect(decide(shell('"r"m  f'), on('deny', 'rm *'))).toBe('deny');
  expect(decide(shell('r\\m f'), on('ask', 'rm *'))).toBe('ask');
  expect(decide(shell('/bin/rm f'), on('deny', 'rm *'))).toBe('deny');
  expect(decide(shell('echo rm f'), on('deny', 'rm *'))).toBeUndefined();
  expect(decide(shell('"r"m f'), on('allow', 'rm *'))).toBeUndefined();
});

test('a person decides on a command that is too long for wildcards, if a rule may be about it', () => {
  const long = shell(`rm ${'a'.repeat(40_000)}`);
  expect(decide(long, on('deny', 'rm *'))).toBe('ask');
  expect(decide(long, on('allow', 'rm *'))).toBeUndefined();
  expect(decide(long, on('allow', '*'))).toBe('allow');
});

test('rules that would take long are not matched to their end, and a person decides', () => {
  const rules = Array.from({ length: 500 }, (_, i) => on('allow', `*${'a'.repeat(450)}${i}b`));
  expect(decide(shell('a'.repeat(32_000)), ...rules)).toBe('ask');
});

test.each([
  ['src/**', 'src/a', true],
  ['src/**', '/workspace/src/b/../a/c', true],
  ['src/**', 'src', false],
  ['src/**', '../src/a', false],
  ['src/**', 'src/../../src/a', false],
  ['src/**', '/etc/a', false],
  ['src/**', '/elsewhere/src/a', false],
  ['src/*', 'src/a/b', false],
  ['**/*.py', 'a.py', true],
  ['**/*.py', 'a/b/c.py', true],
  ['a/**/b/?.c', 'a/x/b/y/b/z.c', true],
  ['a/**/b/?.c', 'a/x/b/y.c/z', false],
  ['**', 'a/b', true],
  ['/etc/**', '/etc/a', true],
  ['/etc/**', '../etc/a', true],
  ['/etc/**', 'etc/a', false],
  ['**', '/etc/a', false],
  ['**', '~/a', false],
  ['**', 'a\0b', false],
])('the path %j allows %j: %j', (pattern, path, isAllowed) => {
  const decision = decide({ type: 'file_write', path }, rule('allow', { action: 'file_write', path: pattern }));
  expect(decision).toBe(isAllowed ? 'allow' : undefined);
});

test('what is denied below the workspace is denied by each path that it may have', () => {
  const deny = rule('deny', { action: 'file_read', path: 'secret/*' });
  expect(decide({ type: 'file_read', path: '/data/sandboxes/1/secret/a' }, deny)).toBe('deny');
  expect(decide({ type: 'file_read', path: '/data/sandboxes/1/other/a' }, deny)).toBeUndefined();
  expect(decide({ type: 'file_write', path: 'secret/a' }, deny)).toBeUndefined();
});

test('tools are matched with their server', () => {
  const call = (server: string, name: string): PermissionAction => ({ type: 'tool', server, name });
  const allow = (tool: string) => rule('allow', { action: 'tool', tool });
  expect(decide(call('lab', 'add'), allow('lab/*'))).toBe('allow');
  expect(decide(call('lab', 'add'), allow('lab/a??'))).toBe('allow');
  expect(decide(call('lab2', 'add'), allow('lab/*'))).toBeUndefined();
  expect(decide({ type: 'code' }, rule('allow', { action: 'code' }))).toBe('allow');
  expect(decide({ type: 'reset' }, rule('allow', { action: 'code' }))).toBeUndefined();
});

test.each([
  ['ls', true],
  ['ls -l a', true],
  // Its configuration names programs.
  ['git status', false],
  ['tree --output=a', false],
  ['tree --outp=a', false],
  ['tree "--out"put a', false],
  ['tree -ao a', false],
  ['tree $X', false],
  ['tree {-o,a}', false],
  ["tree $'\\x2do' a", false],
  ['date', true],
  ['date -u +%s', true],
  ['date -s 10:00', false],
  ['date --se 10:00', false],
  ['date 11211000', false],
  ['file -C -m a', false],
  ['config --get a', false],
])('the preset read_only allows %j: %j', (command, isAllowed) => {
  expect(decide(shell(command), ...READ_ONLY)).toBe(isAllowed ? 'allow' : undefined);
});

test('the preset read_only asks before files with secrets are read, and allows nothing opaque', () => {
  expect(decide({ type: 'file_read', path: 'a/.env.local' }, ...READ_ONLY)).toBe('ask');
  expect(decide({ type: 'file_read', path: '.env' }, ...READ_ONLY)).toBe('ask');
  expect(decide({ type: 'file_read', path: 'env' }, ...READ_ONLY)).toBeUndefined();
  expect(decide(shell('cat a > b', { isOpaque: true }), ...READ_ONLY)).toBeUndefined();
});
