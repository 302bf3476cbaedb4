import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { credentialsIn, hiding, registerSecrets, redact } from './redact.ts';

const KEY = `everturn_${'0a'.repeat(32)}`;
const TOKEN = `eyJ${'a'.repeat(20)}.${'b'.repeat(20)}.${'c'.repeat(20)}`;

test.each([
  ['an API key', `key ${KEY}.`, 'key [hidden].'],
  ['a token', `{"t":"${TOKEN}"}`, '{"t":"[hidden]"}'],
  ['a header', 'Authorization: Bearer abcd-1234.x', 'Authorization: Bearer [hidden]'],
  ['a header of another kind', 'basic dXNlcjpwdw==, x', 'basic [hidden], x'],
  ['a user in a URL', 'at redis://:pw@h:1/0 and http://u:p@h/x', 'at redis://[hidden]@h:1/0 and http://[hidden]@h/x'],
  ['a password with an @', 'postgres://u:p@ss@h/db', 'postgres://[hidden]@h/db'],
  ['a password in angle brackets', 'redis://<user>:<pw>@h redis://[<pw>]@h', 'redis://[hidden]@h redis://[hidden]@h'],
  ['a parameter', '/x?a=1&api_key=2&X-Amz-Signature=3#b', '/x?a=1&api_key=[hidden]&X-Amz-Signature=[hidden]#b'],
  [
    'a short parameter',
    '"http://h/?key=1&sig=2&code=3&id=4"',
    '"http://h/?key=[hidden]&sig=[hidden]&code=[hidden]&id=4"',
  ],
  [
    'JSON',
    '{"authorization":"x","x-api-key":"a\\"b","n":1}',
    '{"authorization":"[hidden]","x-api-key":"[hidden]","n":1}',
  ],
  [
    'JSON in JSON',
    String.raw`{"body":"{\"client_secret\":\"x\",\"b\":\"c\"}"}`,
    String.raw`{"body":"{\"client_secret\":\"[hidden]\",\"b\":\"c\"}"}`,
  ],
])('%s is hidden', (_, text, shown) => {
  expect(redact(text)).toBe(shown);
});

test.each([
  'the API key was revoked: send Authorization: Bearer <key>',
  'bearer of bad news',
  '{"turnId":"turn_1","input_tokens":7,"url":"/v1/agents/sessions?page_token=eyJsaXN0Ijoi&limit=2"}',
  'mail to ann@example.com about https://example.com/a@b',
])('other text is unchanged: %s', (text) => {
  expect(redact(text)).toBe(text);
});

test('messages that say how a value is written keep their placeholders', () => {
  const messages = ['src', 'deploy']
    .flatMap((folder) => linesOf(folder))
    .filter((line) => /<(user|key|name)>/.test(line));
  expect(messages).toContainEqual(expect.stringContaining('redis://[[<user>]:<password>@]<host>'));
  expect(messages).toContainEqual(expect.stringContaining('postgresql://<user>:<password>@<host>'));
  expect(messages.map(redact)).toEqual(messages);
});

/** The lines of the code in a folder of the repository. */
function linesOf(folder: string): string[] {
  const root = path.join(import.meta.dirname, '../..', folder);
  const files = readdirSync(root, { recursive: true, encoding: 'utf8' });
  const sources = files.filter((file) => file.endsWith('.ts') && !file.endsWith('.test.ts'));
  return sources.flatMap((file) => readFileSync(path.join(root, file), 'utf8').split('\n'));
}

test('a registered secret is hidden in every encoding', () => {
  const secret = 'pass"word/+ü';
  const short = 'short';
  registerSecrets([secret, short, undefined]);
  const forms = [secret, JSON.stringify(secret), JSON.stringify(JSON.stringify(secret)), encodeURIComponent(secret)];
  for (const form of forms) {
    expect(redact(`a ${form} b`)).toMatch(/^a \W*\[hidden\]\W* b$/);
  }
  expect(redact(short)).toBe(short);
});

test('registered secrets that overlap are hidden together', () => {
  registerSecrets(['overlapping-1', 'ping-1-and-2']);
  expect(redact('a overlapping-1-and-2 b')).toBe('a [hidden] b');
});

test('a credential registered with its scheme is also hidden without it', () => {
  registerSecrets(['Token 0f1e2d3c4b5a']);
  expect(redact('the token 0f1e2d3c4b5a is no good')).toBe('the token [hidden] is no good');
});

test('a text is searched for the secrets that are given, in all forms', () => {
  const hide = hiding(['Bearer of-the-run', 'short', 'with "quotes"']);
  expect(hide('Bearer of-the-run, of-the-run, short')).toBe('[hidden], [hidden], short');
  expect(hide(JSON.stringify({ a: 'with "quotes"' }))).toBe('{"a":"[hidden]"}');
  expect(hiding([])('anything')).toBe('anything');
});

test('credentials are recognized by their names', () => {
  const named = {
    HTTP_AUTHORIZATION: 'a',
    STRIPE_KEY: 'b',
    MY_TOKEN: 'c',
    GITHUB_PAT: 'd',
    KEYBOARD: 'us',
    PATH: '/bin',
  };
  expect(credentialsIn(named)).toEqual(['a', 'b', 'c', 'd']);
});

test('long lines are redacted in linear time', () => {
  const before = process.cpuUsage().user;
  for (const part of ['a', '"', '\\', '\\"', '://', '?a', '?token', 'eyJ', 'bearer ', '"token":"'])
    redact(part.repeat(200_000));
  // A quadratic pattern would take minutes.
  expect((process.cpuUsage().user - before) / 1e6).toBeLessThan(20);
});
