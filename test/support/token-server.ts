import { createServer, type Server as HttpServer } from 'node:http';
import { text } from 'node:stream/consumers';
import { newer } from './mcp-kinds.ts';

/** An authorization server and an MCP server that accepts only its tokens, in one. */
export class TokenServer {
  /** Everything that a client has sent to the token endpoint. */
  readonly asked: { authorization: string | undefined; form: Record<string, string> }[] = [];
  /** The tokens with which the MCP server was called, in order. */
  readonly used: (string | undefined)[] = [];
  readonly clients = new Map([['crm', 's3cret/+ä']]);
  /** The lifetime of tokens; undefined: the response does not state it. */
  expiresIn: number | undefined = 3600;
  /** An error response instead of a token. */
  answer: { status: number; body: string } | undefined;
  methods: string[] = ['client_secret_basic'];
  /** The authorization server that the MCP server names; undefined: this one. */
  authorizationServer: string | undefined;
  /** Overrides the metadata. */
  metadata: object = {};
  readonly #http: HttpServer;
  readonly #mcp = newer();
  #port = 0;
  #valid = new Set<string>();
  #count = 0;

  private constructor() {
    this.#http = createServer((request, response) => {
      const { pathname } = new URL(request.url ?? '/', this.origin);
      const json = (value: object): void => {
        response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(value));
      };
      if (pathname === '/token') {
        void text(request).then((body) => {
          const form = Object.fromEntries(new URLSearchParams(body));
          this.asked.push({ authorization: request.headers.authorization, form });
          const { status, body: answer } = this.answer ?? this.#issue(request.headers.authorization, form);
          response.writeHead(status, { 'content-type': 'application/json' }).end(answer);
        });
      } else if (pathname === '/.well-known/oauth-protected-resource/mcp') {
        json({ resource: this.url, authorization_servers: [this.authorizationServer ?? this.origin] });
      } else if (pathname === '/.well-known/oauth-authorization-server') {
        json({
          issuer: this.origin,
          token_endpoint: `${this.origin}/token`,
          authorization_endpoint: `${this.origin}/authorize`,
          response_types_supported: ['code'],
          token_endpoint_auth_methods_supported: this.methods,
          ...this.metadata,
        });
      } else if (pathname === '/mcp') {
        const token = request.headers.authorization?.replace(/^Bearer /, '');
        this.used.push(token);
        if (token && this.#valid.has(token)) void this.#mcp(request, response);
        else response.writeHead(401, { 'www-authenticate': 'Bearer error="invalid_token"' }).end();
      } else {
        response.writeHead(404).end();
      }
    });
  }

  static async start(): Promise<TokenServer> {
    const server = new TokenServer();
    await new Promise<void>((resolve) => server.#http.listen(0, '127.0.0.1', resolve));
    const address = server.#http.address();
    if (typeof address === 'object' && address) server.#port = address.port;
    return server;
  }

  get origin(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  get url(): string {
    return `${this.origin}/mcp`;
  }

  /** Invalidates all issued tokens. */
  revoke(): void {
    this.#valid = new Set();
  }

  async stop(): Promise<void> {
    const closed = new Promise((resolve) => this.#http.close(resolve));
    this.#http.closeAllConnections();
    await closed;
  }

  #issue(authorization: string | undefined, form: Record<string, string>): { status: number; body: string } {
    const basic = Buffer.from(authorization?.replace(/^Basic /, '') ?? '', 'base64').toString();
    const [id, secret] = basic ? basic.split(':').map(decoded) : [form['client_id'], form['client_secret']];
    const isBasic = basic !== '';
    const isKnown = this.clients.get(id ?? '') === secret && isBasic === this.methods.includes('client_secret_basic');
    if (!isKnown || form['grant_type'] !== 'client_credentials') {
      return { status: 401, body: JSON.stringify({ error: 'invalid_client', error_description: 'who are you?' }) };
    }
    this.#count += 1;
    const token = `token-${this.#count}`;
    this.#valid.add(token);
    return {
      status: 200,
      body: JSON.stringify({ access_token: token, token_type: 'Bearer', expires_in: this.expiresIn }),
    };
  }
}

function decoded(text: string): string {
  return decodeURIComponent(text.replaceAll('+', ' '));
}
