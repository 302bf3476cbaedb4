import { expect, test } from 'vitest';
import { agentSpec } from '../../../spec/agent-spec.ts';
import { CodeRules } from './code-rules.ts';
import type { AppliedRule } from './decide-action.ts';
import { decideShell } from './decide-shell.ts';
import type { CommandPiece } from './permission-action.ts';

const shellRule = (effect: AppliedRule['effect'], command: string, isOfAgent = false): AppliedRule => {
  return { action: 'shell', effect, command, isOfAgent };
};

const piece = (text: string, more: Partial<CommandPiece> = {}): CommandPiece => {
  return { text, isOpaque: false, commands: [text], ...more };
};

function decide(
  given: CommandPiece,
  rules: AppliedRule[],
  { isScript = false, ...spec }: { isScript?: boolean; code_actions?: object; config?: object } = {},
) {
  const whole = agentSpec.parse({ model: { name: 'm' }, code_actions: {}, ...spec });
  return decideShell({ piece: given, isScript, spec: whole, rules: new CodeRules(rules) });
}

test('a command is asked about by default, and as approvals say', () => {
  expect(decide(piece('ls'), [])).toEqual({ decision: 'ask' });
  expect(decide(piece('ls'), [], { code_actions: { approvals: 'allow' } })).toEqual({ decision: 'allow' });
  expect(decide(piece('ls'), [], { code_actions: { approvals: { shell: 'deny' } } })).toEqual({ decision: 'deny' });
});

test('a rule with wildcards allows a command, and nothing opaque', () => {
  const rules = [shellRule('allow', 'cat *')];
  expect(decide(piece('cat a'), rules).decision).toBe('allow');
  expect(decide(piece('cat a > b', { isOpaque: true }), rules).decision).toBe('ask');
  expect(decide(piece('cat $(ls)', { isOpaque: true, commands: ['cat', 'ls'] }), rules).decision).toBe('ask');
  expect(decide(piece('rm b'), rules).decision).toBe('ask');
});

test('a script is allowed by an equal rule or by *, and denied by what it contains', () => {
  const script = piece('cat a\ncat b', { commands: ['cat a', 'cat b'] });
  const decideScript = (...rules: AppliedRule[]) => decide(script, rules, { isScript: true }).decision;
  expect(decideScript(shellRule('allow', 'cat *'))).toBe('ask');
  expect(decideScript(shellRule('allow', 'cat a\ncat b'))).toBe('allow');
  expect(decideScript(shellRule('allow', '*'))).toBe('allow');
  expect(decideScript(shellRule('allow', '*'), shellRule('deny', 'cat b'))).toBe('deny');
});

test('a denial of the agent is not lifted by a rule of a user', () => {
  const denying = { code_actions: { approvals: { shell: 'deny' } } };
  expect(decide(piece('git status'), [shellRule('allow', 'git *')], denying).decision).toBe('deny');
  expect(decide(piece('git status'), [shellRule('allow', 'git *', true)], denying).decision).toBe('allow');
  const rules = [shellRule('deny', 'rm *', true), shellRule('allow', '*')];
  expect(decide(piece('rm f'), rules).decision).toBe('deny');
});

test('policies name the tool shell, say who decides, and are not made milder by rules', () => {
  const policies = [
    {
      match: { tool: 'shell', arguments: { '/command': { const: 'make all' } } },
      decision: 'ask',
      quorum: 2,
    },
    { match: { tool: 'shell' }, decision: 'allow' },
  ];
  const config = { pause: 'wait', decision_policies: policies };
  const all = [shellRule('allow', '*')];
  expect(decide(piece('make all'), all, { config })).toMatchObject({ decision: 'ask', policy: { quorum: 2 } });
  expect(decide(piece('make all'), all, { config, isScript: true })).toMatchObject({ decision: 'ask' });
  expect(decide(piece('ls'), [], { config })).toEqual({ decision: 'allow' });
  const asked = decide(piece('ls'), [shellRule('ask', 'ls')], { config });
  expect(asked).toMatchObject({ decision: 'ask', policy: { quorum: 1 } });
});
