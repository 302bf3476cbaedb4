import { expect, test } from 'vitest';
import { accountOf } from './account.ts';

const jwt = (claims: object) => `e30.${Buffer.from(JSON.stringify(claims)).toString('base64url')}.signature`;
const userinfo = { endpoint: 'https://idp.example/userinfo', accessToken: 'token' };
const unused = () => Promise.reject(new Error('not asked'));

/** Answers as a userinfo endpoint. */
function answering(status: number, body: string, seen: unknown[] = []) {
  return (url: string | URL, init: unknown) => {
    seen.push([url, init]);
    return Promise.resolve(new Response(body, { status }));
  };
}

test.each([
  ['a name in the ID token', { id_token: jwt({ sub: '1', email: 'ann@idp', name: 'Ann' }) }, 'ann@idp'],
  ['a subject in the ID token, and no more', { id_token: jwt({ sub: 'ann-1' }) }, 'ann-1'],
  ['a name beside the tokens', { id_token: jwt({ sub: '1' }), workspace_name: 'Kitchen' }, 'Kitchen'],
  ['a broken ID token', { id_token: 'x.y.z', username: 'ann' }, 'ann'],
  ['an ID token of another type', { id_token: 5 }, undefined],
  ['nothing', {}, undefined],
  ['no object', 'text', undefined],
  ['a long name', { username: 'a'.repeat(1_000) }, 'a'.repeat(200)],
  ['characters that hide others', { username: 'ann\u202E\u0000\u200B\n@idp' }, 'ann@idp'],
  ['a name of another type', { username: { name: 'ann' }, email: '  ' }, undefined],
])('the account is read from %s', async (_, response, name) => {
  expect(await accountOf({ response, userinfo: undefined, fetch: unused })).toBe(name);
});

test('userinfo is asked with the token if the ID token has no name', async () => {
  const seen: unknown[] = [];
  const fetch = answering(200, JSON.stringify({ sub: '1', preferred_username: 'ann' }), seen);
  expect(await accountOf({ response: { id_token: jwt({ sub: '1' }) }, userinfo, fetch })).toBe('ann');
  expect(seen).toMatchObject([[userinfo.endpoint, { redirect: 'error', headers: { authorization: 'Bearer token' } }]]);
});

test.each([
  ['an error', answering(500, '{"name":"x"}')],
  ['no JSON', answering(200, '<html>')],
  ['no object', answering(200, '[1]')],
  ['no answer', unused],
])('userinfo that gives %s is no error', async (_, fetch) => {
  expect(await accountOf({ response: { id_token: jwt({ sub: '1' }) }, userinfo, fetch })).toBe('1');
});
