import { expect, test } from 'vitest';
import { cpuStopwatch } from '../../../lib/timeout.ts';
import { placeFor, savedToolProblem, savedToolsOf, signatureOf, type SavedTool } from './saved-tool.ts';

const TOOL: SavedTool = {
  category: 'a',
  name: 'b',
  kind: 'tool',
  description: 'Does it.',
  api: 'def run():\n    pass\n',
};

test.each([
  ['def run():\n', 'run()'],
  [
    'import x\n\n\nasync def run(a: dict[str, int] = {"a:b": 1},  # why\n    *, b="):",\n) -> list[int]:\n',
    'run(a: dict[str, int] = {"a:b": 1}, # why *, b="):", ) -> list[int]',
  ],
  ['class A:\n    def run(self):\n        pass\n', 'run(…)'],
  ['run = other\n', 'run(…)'],
  [`def run(${'a, '.repeat(1_000)}):\n`, 'run(…)'],
])('the signature of %j is %j', (api, signature) => {
  expect(signatureOf({ kind: 'tool', api })).toBe(signature);
});

test('the signature of a parser is that of its function parse', () => {
  expect(signatureOf({ kind: 'parser', api: 'def run():\n    pass\ndef parse(text: str) -> X:\n' })).toBe(
    'parse(text: str) -> X',
  );
});

test('a signature is found in time, whatever the code is', () => {
  const used = cpuStopwatch();
  for (const part of ['def run(', '"', '\\', '#', 'def run(\n', 'async  def ']) {
    signatureOf({ kind: 'tool', api: part.repeat(Math.ceil(262_144 / part.length)) });
  }
  expect(used()).toBeLessThan(1_000);
});

test.each<[string, Partial<SavedTool>, string | undefined]>([
  ['a name', {}, undefined],
  ['a path', { name: '../b' }, 'the name "../b" must be'],
  ['a folder', { category: 'a/b' }, 'the name "a/b" must be'],
  ['a name of Python', { name: '__init__' }, 'must be'],
  ['a name that is too long', { name: 'a'.repeat(65) }, 'must be'],
  ['a name with a line break', { name: 'a\n' }, 'must be'],
  ['a keyword', { category: 'import' }, 'import is a keyword'],
  ['null characters', { impl: '\0' }, 'impl must be Unicode'],
  ['half a character', { api: '\ud800' }, 'api must be Unicode'],
  ['too many bytes', { api: '☃'.repeat(100_000) }, 'api may have 262144 bytes, and has 300000'],
])('%s is checked', (_, more, problem) => {
  const found = savedToolProblem({ ...TOOL, ...more });
  if (problem === undefined) expect(found).toBeUndefined();
  else expect(found).toContain(problem);
});

test('saved tools are those of the subject for the agent of its session, or of the agent', () => {
  const session = { agent_name: 'helper', agent_version: 3, subject_id: 'ann' };
  const spec = (block: object) => ({ model: { name: 'm' }, code_actions: block });
  expect(savedToolsOf(session, spec({}))).toEqual({ agentName: 'helper', subjectId: 'ann' });
  expect(savedToolsOf(session, spec({ saved_tools: 'agent' }))).toEqual({ agentName: 'helper' });
  expect(savedToolsOf(session, spec({ saved_tools: 'none' }))).toBeUndefined();
  expect(savedToolsOf({ ...session, agent_version: null }, spec({}))).toBeUndefined();
  expect(savedToolsOf({ ...session, agent_name: null }, spec({}))).toBeUndefined();
  expect(savedToolsOf(session, { model: { name: 'm' } })).toBeUndefined();
  expect(placeFor(undefined, { agentName: 'helper', subjectId: 'ann' })).toBeUndefined();
});
