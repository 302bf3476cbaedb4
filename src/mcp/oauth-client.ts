import { selectClientAuthMethod } from '@modelcontextprotocol/client';
import type { Fetch } from '../lib/guarded-fetch.ts';

export interface OAuthClient {
  client_id: string;
  client_secret?: string;
}

/** The metadata of authorization servers on the authentication of clients (RFC 8414). */
interface AuthenticationMethods {
  token_endpoint_auth_methods_supported?: string[] | undefined;
}

/** Sends a form to an endpoint of an authorization server. */
export async function postAs(
  client: OAuthClient,
  url: string,
  { server, form, fetch }: { server: AuthenticationMethods; form: Record<string, string>; fetch: Fetch },
): Promise<Response> {
  const headers = new Headers({ accept: 'application/json', 'content-type': 'application/x-www-form-urlencoded' });
  const body = new URLSearchParams(form);
  authenticateClient(client, server, headers, body);
  // A redirect would send the secret elsewhere.
  return fetch(url, { method: 'POST', redirect: 'error', headers: Object.fromEntries(headers), body: body.toString() });
}

/**
 * Adds the authentication of a client to a request. The SDK's own code sends the credentials as they are, but RFC 6749
 * (section 2.3.1) encodes them.
 */
export function authenticateClient(
  { client_id: id, client_secret: secret }: OAuthClient,
  { token_endpoint_auth_methods_supported: methods = [] }: AuthenticationMethods,
  headers: Headers,
  body: URLSearchParams,
): void {
  const information = { client_id: id, ...(secret !== undefined && { client_secret: secret }) };
  if (secret !== undefined && selectClientAuthMethod(information, methods) === 'client_secret_basic') {
    const credentials = [id, secret].map((text) => new URLSearchParams({ text }).toString().slice('text='.length));
    headers.set('authorization', `Basic ${Buffer.from(credentials.join(':')).toString('base64')}`);
  } else {
    body.set('client_id', id);
    if (secret !== undefined) body.set('client_secret', secret);
  }
}
