import { expect, test } from 'vitest';
import { loadConfig } from '../config.ts';
import { warnOfClientKey } from './require-keys.ts';

test.each([
  ['without keys', true, { EVERTURN_API_KEY: 'k' }, [expect.stringContaining('EVERTURN_API_KEYS=')]],
  ['with keys', false, { EVERTURN_API_KEY: 'k' }, []],
  ['without keys and without the variable', true, {}, []],
])('a server %s says whether EVERTURN_API_KEY is taken for its own', (_, isKeyless, env, warnings) => {
  const said: unknown[] = [];
  const log = { warn: (message: unknown) => void said.push(message) };
  warnOfClientKey({ config: loadConfig(env), keyring: { isKeyless }, log });
  expect(said).toEqual(warnings);
});
