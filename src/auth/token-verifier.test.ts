import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest';
import { pino } from 'pino';
import { CompactSign, UnsecuredJWT, exportJWK, generateKeyPair, type JWTPayload } from 'jose';
import { loadConfig } from '../config.ts';
import { listen } from '../demo/local-server.ts';
import { OidcIssuer } from '../../test/support/oidc-issuer.ts';
import { IssuerUnavailableError, TokenIssuer, TokenRefusedError } from './token-verifier.ts';

let idp: OidcIssuer;
beforeEach(async () => {
  idp = await OidcIssuer.start();
});
afterEach(async () => {
  vi.useRealTimers();
  await idp.stop();
});

function issuerFor(env: Record<string, string> = {}, cooldownMs = 0): TokenIssuer {
  const set = { EVERTURN_OIDC_ISSUER: idp.url, EVERTURN_OIDC_AUDIENCE: 'everturn', ...env };
  const { oidc } = loadConfig(set);
  if (!oidc) throw new Error('no issuer');
  return new TokenIssuer({ oidc, log: pino({ level: 'silent' }), cooldownMs });
}

test('a token identifies its bearer', async () => {
  const issuer = issuerFor();
  const exp = Math.floor(Date.now() / 1000) + 300;
  const iat = exp - 600;
  expect(await issuer.identify(await idp.token({ iat, exp }))).toEqual({
    caller: { subject: { subjectId: `${idp.url}#u-1`, subjectType: 'user', subjectSlug: 'u-1' }, roles: ['user'] },
    issuedAt: iat * 1000,
    expiresAt: (exp + 30) * 1000,
  });
  const named = await idp.token({ preferred_username: 'ann', aud: ['other', 'everturn'] });
  expect((await issuer.identify(named))?.caller.subject.subjectSlug).toBe('ann');
});

test.each<[string, JWTPayload, Record<string, string>, string[]]>([
  ['a list', { roles: ['admin', 'x'] }, {}, ['admin']],
  ['several', { roles: ['approver', 'user', 'user'] }, {}, ['approver', 'user']],
  ['words', { roles: 'x approver' }, {}, ['approver']],
  ['none that is known', { roles: ['root', 7, null] }, {}, ['user']],
  ['no list', { roles: { admin: true } }, {}, ['user']],
  ['a path', { realm: { roles: ['admin'] } }, { EVERTURN_OIDC_ROLE_CLAIM: 'realm.roles' }, ['admin']],
  ['a name with dots', { 'https://x.y/r': ['admin'] }, { EVERTURN_OIDC_ROLE_CLAIM: 'https://x.y/r' }, ['admin']],
  ['mapped values', { roles: ['ops', 'admin'] }, { EVERTURN_OIDC_ROLES: 'ops=approver' }, ['approver']],
])('roles from %s', async (_, claims, env, roles) => {
  expect((await issuerFor(env).identify(await idp.token(claims)))?.caller.roles).toEqual(roles);
});

test('a text that is not a token of this issuer is ignored, without a request to the issuer', async () => {
  const issuer = issuerFor();
  for (const other of ['', 'key', 'a.b.c', `everturn_${'0'.repeat(64)}`, await idp.token({ iss: 'https://other' })]) {
    expect(await issuer.identify(other), other).toBeUndefined();
  }
  expect(idp.fetches).toBe(0);
});

/**
 * Some would share their subject with other tokens: a number with its text, all objects, texts that the catalog stores
 * alike.
 */
const BAD_SUBJECTS = ['', 5, {}, ['u-1'], true, 'u\r\n1', 'u\0', 'u\u0085', 'u\ud800', 'x'.repeat(256)];

test('a subject keeps the characters of its claim, up to 255', async () => {
  const issuer = issuerFor();
  for (const sub of ['0', ' auth0|5 ', 'x'.repeat(255), '😀'.repeat(255)]) {
    const bearer = await issuer.identify(await idp.token({ sub }));
    expect(bearer?.caller.subject.subjectId).toBe(`${idp.url}#${sub}`);
  }
});

test.each([
  ['control characters and line breaks are removed', 'an\0n\r\n\u2028', 'ann'],
  ['characters that reverse text are removed', '\u202enna\u2066', 'nna'],
  ['an empty name is ignored', '', 'u-1'],
  ['a name of control characters is ignored', '\r\n', 'u-1'],
  ['a value other than text is ignored', { toString: 'ann' }, 'u-1'],
  ['a long name is truncated between characters', `${'x'.repeat(255)}😀`, 'x'.repeat(255)],
])('names: %s', async (_, name, slug) => {
  const bearer = await issuerFor().identify(await idp.token({ preferred_username: name }));
  expect(bearer?.caller.subject.subjectSlug).toBe(slug);
});

test('invalid tokens are rejected with the reason', async () => {
  const issuer = issuerFor();
  const now = Math.floor(Date.now() / 1000);
  const good = await idp.token();
  const [head, body, signature = ''] = good.split('.');
  const claims = { iss: idp.url, aud: 'everturn', sub: 'u-1', exp: now + 300 };
  const secret = new TextEncoder().encode(JSON.stringify(idp.publicKey));
  const foreign = await generateKeyPair('RS256');
  const signWith = (key: Parameters<CompactSign['sign']>[0], alg: string, more = {}) =>
    new CompactSign(new TextEncoder().encode(JSON.stringify(claims)))
      .setProtectedHeader({ alg, kid: idp.publicKey.kid ?? '', ...more })
      .sign(key);
  const cases: [string, string, RegExp][] = [
    ['another audience', await idp.token({ aud: 'other' }), /"aud"/],
    ['no audience', await idp.token({ aud: [] }), /"aud"/],
    ['expired', await idp.token({ exp: now - 31 }), /expired/],
    ['no expiry', await idp.token({}, {}, 'exp'), /"exp"/],
    ['not yet valid', await idp.token({ nbf: now + 60 }), /"nbf"/],
    ['no subject', await idp.token({}, {}, 'sub'), /"sub"/],
    ...(await Promise.all(
      BAD_SUBJECTS.map(async (sub): Promise<(typeof cases)[number]> => [
        `sub ${JSON.stringify(sub)}`,
        await idp.token({ sub } as JWTPayload),
        /"sub" claim must be a string of 1 to 255 characters without control characters/,
      ]),
    )),
    ['another key with the same id', await signWith(foreign.privateKey, 'RS256'), /not signed by a key/],
    [
      'a key in its own header',
      await signWith(foreign.privateKey, 'RS256', { jwk: await exportJWK(foreign.publicKey) }),
      /not sign/,
    ],
    ['a shared secret', await signWith(secret, 'HS256'), /not signed/],
    ['no signature', new UnsecuredJWT(claims).encode(), /not signed/],
    ['truncated', `${head}.${body}.${signature.slice(2)}`, /not signed/],
    [
      'altered',
      `${head}.${Buffer.from(JSON.stringify({ ...claims, sub: 'root' })).toString('base64url')}.${signature}`,
      /not/,
    ],
  ];
  for (const [name, token, reason] of cases) {
    const identified = issuer.identify(token);
    await expect(identified, name).rejects.toThrow(TokenRefusedError);
    await expect(identified, name).rejects.toThrow(reason);
    await expect(identified, name).rejects.toMatchObject({ isForged: reason.source.startsWith('not') });
  }
  // Within the clock tolerance.
  expect(await issuer.identify(await idp.token({ exp: now - 20, nbf: now + 20 }))).toBeDefined();
});

test('keys of any asymmetric algorithm may rotate; an unknown key id triggers a fetch at most once per cooldown', async () => {
  const issuer = issuerFor({}, 60_000);
  const old = await idp.token();
  expect(await issuer.identify(old)).toBeDefined();
  expect(idp.fetches).toBe(1);
  await idp.rotate('ES256');
  const next = await idp.token({}, { alg: 'ES256' });
  for (let i = 0; i < 5; i++) await expect(issuer.identify(next)).rejects.toThrow(TokenRefusedError);
  expect(idp.fetches).toBe(1);
  // After the cooldown.
  const eager = issuerFor();
  expect(await eager.identify(next)).toBeDefined();
  await idp.rotate('EdDSA');
  expect(await eager.identify(await idp.token({}, { alg: 'EdDSA' }))).toBeDefined();
  await expect(eager.identify(next)).rejects.toThrow(TokenRefusedError);
  // Known keys are not fetched again.
  const fetches = idp.fetches;
  for (let i = 0; i < 5; i++) await eager.identify(await idp.token({}, { alg: 'EdDSA' }));
  expect(idp.fetches).toBe(fetches);
});

test('while the issuer is unavailable, tokens of known keys are accepted, and others cannot be verified', async () => {
  const issuer = issuerFor();
  idp.isAway = true;
  const token = await idp.token();
  await expect(issuer.identify(token)).rejects.toThrow(IssuerUnavailableError);
  idp.isAway = false;
  vi.useFakeTimers({ now: Date.now() + 3_000, toFake: ['Date'] });
  expect(await issuer.identify(token)).toBeDefined();
  idp.isAway = true;
  // Keys are refreshed every ten minutes, and stay valid for a day while that fails.
  vi.setSystemTime(Date.now() + 3_600_000);
  const later = await idp.token();
  expect(await issuer.identify(later)).toBeDefined();
  await idp.rotate();
  await expect(issuer.identify(await idp.token())).rejects.toThrow(IssuerUnavailableError);
  expect(await issuer.identify(later)).toBeDefined();
  vi.setSystemTime(Date.now() + 24 * 3_600_000);
  await expect(issuer.identify(later)).rejects.toThrow(IssuerUnavailableError);
  idp.isAway = false;
  vi.setSystemTime(Date.now() + 3_000);
  expect(await issuer.identify(await idp.token())).toBeDefined();
});

test('metadata that names another issuer is rejected', async () => {
  idp.claimsToBe = 'https://evil.example';
  await expect(issuerFor().identify(await idp.token())).rejects.toThrow(IssuerUnavailableError);
});

const METADATA = '/.well-known/openid-configuration';
const MIB = 1024 * 1024;

test('documents of the provider have at most 1 MiB, and no redirect is followed to them', async () => {
  const providers: [string, { padded?: [path: string, bytes: number]; moved?: string }, 'accepted' | 'unavailable'][] =
    [
      ['as usual', {}, 'accepted'],
      ['metadata that moved', { moved: METADATA }, 'unavailable'],
      ['keys that moved', { moved: '/keys' }, 'unavailable'],
      ['metadata of 1 MiB', { padded: [METADATA, MIB] }, 'accepted'],
      ['metadata of 1 MiB and a byte', { padded: [METADATA, MIB + 1] }, 'unavailable'],
      ['keys of 1 MiB', { padded: ['/keys', MIB] }, 'accepted'],
      ['keys of 1 MiB and a byte', { padded: ['/keys', MIB + 1] }, 'unavailable'],
    ];
  const found = await Promise.all(
    providers.map(async ([name, { padded: [paddedPath, bytes] = ['', 0], moved }]) => {
      const { url, stop } = await listen((request, response) => {
        const path = request.url ?? '';
        if (path === moved) return void response.writeHead(307, { location: `/moved${path}` }).end();
        const document = path.endsWith('/keys') ? idp.answer('/keys') : { issuer: url, jwks_uri: `${url}/keys` };
        return void response.end(JSON.stringify(document).padEnd(path === paddedPath ? bytes : 0));
      }, '');
      onTestFinished(stop);
      const token = await idp.token({ iss: url });
      const isAccepted = await issuerFor({ EVERTURN_OIDC_ISSUER: url })
        .identify(token)
        .catch((error: unknown) => {
          expect(error, name).toBeInstanceOf(IssuerUnavailableError);
        });
      return [name, isAccepted ? 'accepted' : 'unavailable'];
    }),
  );
  expect(found).toEqual(providers.map(([name, , expected]) => [name, expected]));
});
