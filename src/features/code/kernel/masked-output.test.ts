import { fc } from '../../../../test/support/fast-check.ts';
import { expect, test } from 'vitest';
import { cases } from '../../../../test/support/seed.ts';
import { appendPart, type OutputPart } from '../../../core/output-parts.ts';
import { HiddenValues, kernelVariables } from '../host/kernel-variables.ts';
import { CellOutput } from './cell-output.ts';
import { MaskedOutput, withoutOpenEnd } from './masked-output.ts';

const host = { names: ['A', 'B', 'C'], env: { A: 'abab', B: 'ababcd', C: 'dcba' } };
const hidden = new HiddenValues();
hidden.add(kernelVariables({ X: '${A}${B}${C}' }, host).hidden);

function passed(parts: OutputPart[], flushes: boolean): { shown: OutputPart[]; output: MaskedOutput } {
  const shown: OutputPart[] = [];
  const output = new MaskedOutput(hidden, (part) => appendPart(shown, part));
  for (const part of parts) output.add(part);
  if (flushes) output.flush();
  return { shown, output };
}

test('an output is shown piece by piece as it is shown as a whole', () => {
  const letters = fc.array(fc.constantFrom('a', 'b', 'c', 'd', 'ab', 'cd', 'x'), { minLength: 1 });
  const part = fc.record({
    channel: fc.constantFrom<OutputPart['channel']>('stdout', 'stdout', 'stdout', 'stderr'),
    text: letters.map((all) => all.join('')),
  });
  fc.assert(
    fc.property(fc.array(part), (parts) => {
      const whole: OutputPart[] = [];
      for (const one of parts) appendPart(whole, one);
      const expected = whole.map(({ channel, text }) => ({ channel, text: hidden.mask(text) }));
      expect(passed(parts, true).shown).toEqual(expected);
    }),
    { numRuns: cases(500) },
  );
});

test('where output is cut, nothing of a value is shown', () => {
  const shown: OutputPart[] = [];
  const masked = new MaskedOutput(hidden, (part) => appendPart(shown, part));
  const onCut = (): void => masked.cut();
  const cell = new CellOutput(9, (part) => masked.add(part), { hidden, onCut });
  cell.add('stdout', 'dcba: ');
  cell.add('stdout', 'ababcd');
  const { parts, discardedBytes } = cell.end();
  masked.flush();
  expect(parts).toEqual([{ channel: 'stdout', text: 'dcba: ' }]);
  expect(shown).toEqual([{ channel: 'stdout', text: '[C]: ' }]);
  expect(discardedBytes).toBe(3);
  // A value that is complete remains to be masked.
  expect(withoutOpenEnd('x dcba', hidden.values)).toBe('x ');
  expect(withoutOpenEnd('x dcba.', hidden.values)).toBe('x dcba.');
});

test('only what may become a value is held back, and no more than a bound', () => {
  const stdout = (text: string): OutputPart => ({ channel: 'stdout', text });
  expect(passed([stdout('12 ab'), stdout('a')], false).shown).toEqual([stdout('12 ')]);
  expect(passed([stdout('12 ab'), stdout('x')], false).shown).toEqual([stdout('12 abx')]);
  expect(passed([stdout('ab'.repeat(500_000))], false).shown).not.toEqual([]);
});
