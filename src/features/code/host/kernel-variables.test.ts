import { expect, test } from 'vitest';
import { HiddenValues, kernelVariables } from './kernel-variables.ts';

const host = {
  names: ['TOKEN', 'LONG_TOKEN', 'SHORT', 'MISSING'],
  env: { TOKEN: 'key"1', LONG_TOKEN: 'key"1-long', SHORT: 'abc', OTHER: 'other' },
};

test('a value refers to variables of the host, and to no others', () => {
  const { env } = kernelVariables({ AUTH: 'Bearer ${TOKEN}', PLAIN: '$TOKEN $', BOTH: '${TOKEN}${LONG_TOKEN}' }, host);
  expect(env).toEqual({ AUTH: 'Bearer key"1', PLAIN: '$TOKEN $', BOTH: 'key"1key"1-long' });
  for (const [name, problem] of [
    ['OTHER', 'does not list OTHER'],
    ['MISSING', 'no variable MISSING'],
    ['SHORT', 'less than 4 characters'],
  ]) {
    expect(() => kernelVariables({ A: `\${${name}}` }, host)).toThrow(problem);
  }
});

test('the values of the host are hidden in texts, the longer one first, and in JSON', () => {
  const values = new HiddenValues();
  const mask = (text: string): string => values.mask(text);
  values.add(kernelVariables({ A: '${TOKEN}' }, host).hidden);
  // A later call of another agent, or of the same one after a change.
  values.add(kernelVariables({ B: '${LONG_TOKEN}', C: 'plain' }, host).hidden);
  expect(mask('key"1 key"1-long plain other')).toBe('[TOKEN] [LONG_TOKEN] plain other');
  expect(mask(JSON.stringify({ a: 'key"1' }))).toBe('{"a":"[TOKEN]"}');
  const odd = new HiddenValues();
  odd.add(kernelVariables({ A: '${ODD}' }, { names: ['ODD'], env: { ODD: `<ä&"'\\>` } }).hidden);
  const written = [`<ä&"'\\>`, String.raw`<\u00e4&\"'\\>`, "&lt;ä&amp;&quot;'\\&gt;", String.raw`<ä&"\'\\>`];
  for (const text of written) expect(odd.mask(`(${text})`)).toBe('([ODD])');
  expect(kernelVariables({ A: 'key"1' }, host).hidden).toEqual([]);
});
