import { expect, test } from 'vitest';
import { stdioEndpoint } from '../../test/support/mcp-kinds.ts';
import { HiddenCredentials } from './hidden-credentials.ts';

test('the variables of a program that have the name of a credential are hidden', () => {
  const endpoint = { ...stdioEndpoint(), env: { API_TOKEN: 'token-of-the-program', REGION: 'eu-central-1' } };
  const { hide } = new HiddenCredentials(endpoint);
  expect(hide?.('token-of-the-program in eu-central-1')).toBe('[hidden] in eu-central-1');
  expect(new HiddenCredentials(stdioEndpoint()).hide).toBeUndefined();
});

test('the last tokens of a server are hidden, and the ones before that are forgotten', async () => {
  const url = 'http://127.0.0.1/';
  const endpoint = { ...stdioEndpoint(), url, headers: {}, trusted: true } as const;
  const { command: _, args: __, env: ___, ...http } = endpoint;
  const credentials = new HiddenCredentials(http);
  expect(credentials.hide).toBeUndefined();
  const fetch = credentials.noting(() => Promise.resolve(new Response()));
  const token = (n: number) => `token-number-${n}`;
  for (const n of [1, 2, 3, 4, 5, 5]) await fetch(url, { headers: { authorization: `Bearer ${token(n)}` } });
  const said = [1, 2, 3, 4, 5].map((n) => credentials.hide?.(token(n)));
  expect(said).toEqual([token(1), '[hidden]', '[hidden]', '[hidden]', '[hidden]']);
});
