import { createServer, type IncomingMessage, type Server as HttpServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import Provider, { type Configuration, type InteractionResults } from 'oidc-provider';
import { TestMcpServer, type HttpAnswer, type TestMcpServerOptions } from './mcp-server.ts';

interface Options {
  /** The lifetime of access tokens in seconds. */
  accessTokenTtl?: number;
  /** Clients that the operator of the authorization server has registered. */
  clients?: Configuration['clients'];
  /** Whether clients can register by themselves. */
  registers?: boolean;
}

/** An authorization server (`oidc-provider`) and an MCP server that accepts only its tokens. */
export class ProtectedMcpServer {
  readonly issuer: string;
  readonly provider: Provider;
  mcp!: TestMcpServer;
  /** Who signs in at the authorization server, and whether that user consents. */
  user = { name: 'ann@idp', consents: true };
  /** The requests to the token endpoint, by grant type. */
  readonly tokenRequests: string[] = [];
  /** The access tokens with which the MCP server was called, in order. */
  readonly used: string[] = [];
  /** Whether the MCP server rejects calls of tools, whatever their tokens. */
  rejectsCalls = false;
  /** The scopes that the MCP server asks for. */
  scope = 'notes';
  /** The scope that calls of tools need. */
  requires: string | undefined;
  /** Called for each request for the metadata of the resource, which waits for it. */
  onMetadata: () => Promise<void> = () => Promise.resolve();
  readonly #http: HttpServer;

  private constructor(http: HttpServer, issuer: string, options: Options) {
    this.#http = http;
    this.issuer = issuer;
    const { accessTokenTtl = 3600, clients = [], registers = true } = options;
    this.provider = new Provider(issuer, {
      clients,
      cookies: { keys: ['a secret of the test'] },
      scopes: ['openid', 'offline_access', 'notes', 'write'],
      claims: { openid: ['sub', 'email'] },
      conformIdTokenClaims: false,
      findAccount: (_context, id) => ({ accountId: id, claims: () => ({ sub: id, email: id }) }),
      interactions: { url: (_context, { uid }) => `/interaction/${uid}` },
      issueRefreshToken: (_context, client) => client.grantTypeAllowed('refresh_token'),
      rotateRefreshToken: true,
      ttl: { AccessToken: accessTokenTtl, RefreshToken: 86_400, Grant: 86_400, Session: 86_400, Interaction: 600 },
      features: {
        devInteractions: { enabled: false },
        registration: { enabled: registers },
        revocation: { enabled: true, allowedPolicy: () => true },
        resourceIndicators: {
          enabled: true,
          getResourceServerInfo: (_context, resource) => ({
            scope: 'notes write',
            audience: resource,
            accessTokenFormat: 'opaque',
            accessTokenTTL: accessTokenTtl,
          }),
          useGrantedResource: () => true,
        },
      },
    });
  }

  static async start({
    mcp,
    ...options
  }: Options & { mcp?: Partial<TestMcpServerOptions> } = {}): Promise<ProtectedMcpServer> {
    const http = createServer();
    await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
    const { port } = http.address() as AddressInfo;
    const server = new ProtectedMcpServer(http, `http://127.0.0.1:${port}`, options);
    const answer = server.provider.callback();
    http.on('request', (request, response) => {
      if (request.url?.startsWith('/interaction/')) void server.#interact(request, response);
      else void answer(request, response);
    });
    server.provider.on('grant.success', ({ oidc }) => server.tokenRequests.push(String(oidc.params?.['grant_type'])));
    server.mcp = await TestMcpServer.start({
      tools: [{ name: 'list', annotations: { readOnlyHint: true }, handler: () => 'milk' }, { name: 'add' }],
      guard: (request, body) => server.#guard(request, body),
      ...mcp,
    });
    return server;
  }

  /** The last token that was used. */
  get token(): string {
    return this.used.at(-1) ?? '';
  }

  /** Ends the access that the user has given, as the user can do at the authorization server. */
  async revoke(): Promise<void> {
    const grantId = (await this.provider.AccessToken.find(this.token))?.grantId ?? '';
    await this.provider.RefreshToken.revokeByGrantId(grantId);
    await this.provider.AccessToken.revokeByGrantId(grantId);
  }

  async stop(): Promise<void> {
    await this.mcp.stop();
    this.#http.closeAllConnections();
    await new Promise((resolve) => this.#http.close(resolve));
  }

  /** Signs the user in, and decides on the consent, without a page. */
  async #interact(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { prompt, params, grantId, session } = await this.provider.interactionDetails(request, response);
    const finish = (result: InteractionResults): Promise<void> =>
      this.provider.interactionFinished(request, response, result, { mergeWithLastSubmission: true });
    if (!this.user.consents) return finish({ error: 'access_denied', error_description: 'the user said no' });
    if (prompt.name === 'login') return finish({ login: { accountId: this.user.name } });
    const known = grantId === undefined ? undefined : await this.provider.Grant.find(grantId);
    const grant =
      known ?? new this.provider.Grant({ accountId: session?.accountId ?? '', clientId: String(params['client_id']) });
    const missing = prompt.details as { missingOIDCScope?: string[]; missingResourceScopes?: Record<string, string[]> };
    grant.addOIDCScope((missing.missingOIDCScope ?? []).join(' '));
    for (const [resource, scopes] of Object.entries(missing.missingResourceScopes ?? {})) {
      grant.addResourceScope(resource, scopes.join(' '));
    }
    return finish({ consent: { grantId: await grant.save() } });
  }

  async #guard({ url = '', headers }: IncomingMessage, body: string): Promise<HttpAnswer | undefined> {
    if (url === '/.well-known/oauth-protected-resource/mcp') {
      const metadata = { resource: this.mcp.url, authorization_servers: [this.issuer], scopes_supported: ['notes'] };
      await this.onMetadata();
      return { status: 200, contentType: 'application/json', body: JSON.stringify(metadata) };
    }
    const [, token] = /^Bearer (\S+)$/.exec(headers.authorization ?? '') ?? [];
    if (token !== undefined) this.used.push(token);
    const found = token === undefined ? undefined : await this.provider.AccessToken.find(token);
    const isCall = body.includes('"tools/call"');
    const metadata = `${new URL(this.mcp.url).origin}/.well-known/oauth-protected-resource/mcp`;
    if (found?.isValid && found.aud === this.mcp.url && !(this.rejectsCalls && isCall)) {
      if (!isCall || this.requires === undefined || found.scopes.has(this.requires)) return undefined;
      const challenge = `Bearer error="insufficient_scope", scope="${this.requires}", resource_metadata="${metadata}"`;
      return { status: 403, headers: { 'www-authenticate': challenge } };
    }
    return {
      status: 401,
      headers: { 'www-authenticate': `Bearer resource_metadata="${metadata}", scope="${this.scope}"` },
    };
  }
}

/** The user of a browser, who presses one of the buttons of the page that asks whether to sign in. */
type Decision = 'continue' | 'decline';

interface Page {
  url: URL;
  status: number;
  text: string;
}

/** A browser without scripts: it keeps cookies, follows redirects, and submits the form before a sign-in. */
export class TestBrowser {
  readonly #cookies = new Map<string, Map<string, string>>();

  /** Goes to an address, and on until there is a page without a form, or an address that `stop` accepts. */
  async open(address: string, stop?: (url: URL) => boolean, decision: Decision = 'continue'): Promise<Page> {
    const page = await this.visit(address, stop);
    const [, token] = /name="token" value="(\w+)"/.exec(page.text) ?? [];
    if (token === undefined) return page;
    return this.visit(page.url.href, stop, new URLSearchParams({ token, decision }));
  }

  /** Goes to an address, and follows redirects until there is a page, or an address that `stop` accepts. */
  async visit(address: string, stop: (url: URL) => boolean = () => false, form?: URLSearchParams): Promise<Page> {
    let url = new URL(address);
    for (let hops = 0; hops < 20; hops++) {
      if (stop(url)) return { url, status: 0, text: '' };
      const jar = this.#jar(url);
      const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join('; ');
      const response = await fetch(url, {
        redirect: 'manual',
        headers: { accept: 'text/html', ...(cookie && { cookie }) },
        ...(form && hops === 0 && { method: 'POST', body: form }),
      });
      for (const set of response.headers.getSetCookie()) {
        const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(set) ?? [];
        if (value === '') jar.delete(name);
        else jar.set(name, value);
      }
      const location = response.headers.get('location');
      const text = await response.text();
      if (location === null) return { url, status: response.status, text };
      url = new URL(location, url);
    }
    throw new Error(`too many redirects, the last to ${url.href}`);
  }

  #jar({ origin }: URL): Map<string, string> {
    const jar = this.#cookies.get(origin) ?? new Map<string, string>();
    this.#cookies.set(origin, jar);
    return jar;
  }
}
