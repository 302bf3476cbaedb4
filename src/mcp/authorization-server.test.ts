import { expect, onTestFinished, test } from 'vitest';
import { listen } from '../demo/local-server.ts';
import { discoverTarget } from './authorization-server.ts';
import { failureReason } from './failure-reason.ts';
import type { HttpEndpoint } from './registry.ts';

/** A server that is its own authorization server, with these changes to its metadata. */
async function start({ resource, server }: { resource?: object; server?: object }): Promise<HttpEndpoint> {
  const { url: origin, stop } = await listen((request, response) => {
    const { pathname, origin } = new URL(request.url ?? '/', `http://${request.headers.host}`);
    const resourceMetadata = { resource: `${origin}/mcp`, authorization_servers: [origin], ...resource };
    const serverMetadata = {
      issuer: origin,
      authorization_endpoint: `${origin}/authorize`,
      token_endpoint: `${origin}/token`,
      response_types_supported: ['code'],
      code_challenge_methods_supported: ['S256'],
      ...server,
    };
    response.setHeader('content-type', 'application/json');
    if (pathname.includes('oauth-protected-resource')) response.end(JSON.stringify(resourceMetadata));
    else if (pathname.includes('oauth-authorization-server')) response.end(JSON.stringify(serverMetadata));
    else response.writeHead(404).end();
  }, '');
  onTestFinished(stop);
  const url = `${origin}/mcp`;
  return { id: 's', name: 's', url, headers: {}, trusted: true, idempotentTools: [], isolation: 'session' };
}

test('the target of a sign-in is discovered from the metadata of the server', async () => {
  const endpoint = await start({
    resource: { scopes_supported: ['read', 'write'] },
    server: { scopes_supported: ['read', 'write', 'offline_access'] },
  });
  const { origin } = new URL(endpoint.url);
  expect(await discoverTarget(endpoint, {}, fetch)).toMatchObject({
    server: { issuer: origin, token_endpoint: `${origin}/token` },
    resource: endpoint.url,
    scope: 'read write offline_access',
  });
  expect(await discoverTarget(endpoint, { scope: 'read' }, fetch)).toMatchObject({ scope: 'read offline_access' });
});

test.each([
  ['another resource', { resource: { resource: 'https://other.example/mcp' } }, 'names another resource than itself'],
  ['no PKCE', { server: { code_challenge_methods_supported: undefined } }, 'code_challenge_methods_supported'],
  ['PKCE without S256', { server: { code_challenge_methods_supported: ['plain'] } }, 'does not support PKCE'],
  ['another issuer', { server: { issuer: 'https://other.example' } }, 'https://other.example'],
  ['http for the user', { server: { authorization_endpoint: 'http://login.example/' } }, 'must be an https URL'],
  ['a script', { server: { authorization_endpoint: 'javascript:alert(1)' } }, 'authorization_endpoint'],
  ['http for the code', { server: { token_endpoint: 'http://login.example/token' } }, 'must be an https URL'],
  ['http for tokens', { server: { revocation_endpoint: 'http://login.example/revoke' } }, 'must be an https URL'],
  ['too many scopes', { resource: { scopes_supported: ['x'.repeat(2_001)] } }, 'more scopes than a URL can name'],
])('metadata with %s is rejected', async (_, changes, reason) => {
  const error: unknown = await discoverTarget(await start(changes), {}, fetch).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(Error);
  expect(failureReason(error)).toContain(reason);
});
