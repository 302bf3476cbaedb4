import { pino } from 'pino';
import { describe, expect, onTestFinished, test } from 'vitest';
import { TokenIssuer } from '../../src/auth/token-verifier.ts';
import { loadConfig } from '../../src/config.ts';
import { McpPool } from '../../src/mcp/pool.ts';
import { McpRegistry } from '../../src/mcp/registry.ts';
import { startHostileServer, type Hostile, type HostileAnswers } from '../support/hostile-server.ts';
import { longestStretch, MAX_STRETCH_MS } from '../support/main-thread.ts';
import { OidcIssuer } from '../support/oidc-issuer.ts';
import { SCOPE } from '../support/tool-scope.ts';

const MB = 1_000_000;
const GZIP = { gzip: true };

/** Bodies that are JSON, but for their end. */
const HOSTILE: [string, Hostile, Partial<HostileAnswers>?][] = [
  ['of 300 MB', { head: '{"x":"', unit: 'x', bytes: 300 * MB, tail: '"}' }],
  ['of 300 MB behind 0.3 MB of gzip', { head: '{"x":"', unit: 'x', bytes: 300 * MB, tail: '"}' }, GZIP],
  ['that nests a million deep', { unit: '[', bytes: MB }],
  ['of 300,000 objects', { head: '{"keys":[', unit: '{},', bytes: 900_000, tail: '{}]}' }],
  ['of 45,000 objects', { head: '{"keys":[', unit: '{},', bytes: 67_500, tail: '{}]}' }],
  [
    'of 4,000 wrong keys',
    { head: '{"keys":[', unit: '{"kty":"RSA","kid":"k","n":"AQ"},', bytes: 132_000, tail: '{}]}' },
  ],
  ['of a long error', { head: '{"error":"x","error_description":"', unit: ' token=', bytes: 900_000, tail: '"}' }],
  ['that never ends, byte by byte', { unit: ' ', bytes: MB, pauseMs: 10 }],
  ['that redirects to itself', { unit: ' ', bytes: 0, location: '$origin/loop' }],
];

async function hostileServer(answers: HostileAnswers): Promise<string> {
  const { url, stop } = await startHostileServer({
    ...answers,
    paths: { '/loop': { unit: ' ', bytes: 0, location: '$origin/loop' }, ...answers.paths },
  });
  onTestFinished(stop);
  return new URL(url).origin;
}

describe.each([
  ['metadata', '/.well-known/openid-configuration'],
  ['keys', '/keys'],
])('an OIDC issuer with %s', (_, path) => {
  test.each(HOSTILE)('%s', async (_name, hostile, more = {}) => {
    const metadata: Hostile = { head: '{"issuer":"$origin","jwks_uri":"$origin/keys"}', unit: ' ', bytes: 0 };
    const origin = await hostileServer({
      ...more,
      paths: { '/.well-known/openid-configuration': metadata, [path]: hostile },
    });
    const idp = await OidcIssuer.start();
    onTestFinished(() => idp.stop());
    const token = await idp.token({ iss: origin });
    const { oidc } = loadConfig({ EVERTURN_OIDC_ISSUER: origin, EVERTURN_OIDC_AUDIENCE: 'everturn' });
    if (!oidc) throw new Error('no issuer');
    const issuer = new TokenIssuer({ oidc, log: pino({ level: 'silent' }) });
    const stretch = await longestStretch(() =>
      expect(issuer.identify(token)).rejects.toThrow(/is unavailable$|is not signed by a key of the issuer$/),
    );
    expect(stretch).toBeLessThan(MAX_STRETCH_MS);
  });
});

describe.each([
  ['its token endpoint', '/token'],
  ['the metadata of its authorization server', '/.well-known/oauth-authorization-server'],
])('an MCP server with %s', (_, path) => {
  test.each(HOSTILE)('%s', async (_name, hostile, more = {}) => {
    const origin = await hostileServer({ ...more, paths: { [path]: hostile } });
    const registry = new McpRegistry();
    registry.add('crm', {
      url: `${origin}/mcp`,
      auth: {
        type: 'client_credentials',
        ...(path === '/token' ? { token_url: `${origin}/token` } : { issuer: origin }),
        client_id: 'crm',
        client_secret: 's3cret',
      },
    });
    const endpoint = registry.resolve({ type: 'truefoundry-mcp-registry', name: 'crm' });
    if (!endpoint) throw new Error('no endpoint');
    const pool = new McpPool({ allowPrivateUrls: () => false, responseTimeoutMs: 2_000 });
    onTestFinished(() => pool.close());
    const { signal } = new AbortController();
    let reason = '';
    const stretch = await longestStretch(async () => {
      reason = String(await pool.tools(endpoint, SCOPE, signal).catch((error: unknown) => error));
    });
    expect(reason).toMatch(/its (token endpoint|authorization server) |no MCP handshake within 2 s/);
    expect(reason.length).toBeLessThan(1_000);
    expect(stretch).toBeLessThan(MAX_STRETCH_MS);
  });
});
