import { exportJWK, generateKeyPair, SignJWT, type CryptoKey, type JWK, type JWTPayload } from 'jose';
import { listen } from '../../src/demo/local-server.ts';

/** An OpenID Connect provider over HTTP, to the extent that a resource server uses it. */
export class OidcIssuer {
  readonly url: string;
  /** The number of requests for its keys so far. */
  fetches = 0;
  isAway = false;
  /** The issuer that it declares. */
  claimsToBe: string;
  #published: JWK[] = [];
  #signing: { kid: string; key: CryptoKey } | undefined;
  readonly #stop: () => Promise<void>;

  private constructor(url: string, stop: () => Promise<void>) {
    this.url = url;
    this.claimsToBe = url;
    this.#stop = stop;
  }

  static async start(): Promise<OidcIssuer> {
    const holder: { issuer?: OidcIssuer } = {};
    const { url, stop } = await listen((request, response) => {
      const body = holder.issuer?.answer(new URL(request.url ?? '/', 'http://x').pathname);
      response.writeHead(body ? 200 : 503, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    }, '/realm');
    const issuer = new OidcIssuer(url, stop);
    holder.issuer = issuer;
    await issuer.rotate();
    return issuer;
  }

  answer(path: string): object | undefined {
    if (this.isAway) return undefined;
    if (path.endsWith('/openid-configuration')) return { issuer: this.claimsToBe, jwks_uri: `${this.url}/keys` };
    this.fetches += 1;
    return { keys: this.#published };
  }

  /** Signs with a new key from now on, and publishes only that one. */
  async rotate(alg = 'RS256'): Promise<void> {
    const { publicKey, privateKey } = await generateKeyPair(alg, { extractable: true });
    const kid = `k${this.#published.length + Math.random()}`;
    this.#published = [{ ...(await exportJWK(publicKey)), kid, alg, use: 'sig' }];
    this.#signing = { kid, key: privateKey };
  }

  get publicKey(): JWK {
    const [key] = this.#published;
    if (!key) throw new Error('there is no key');
    return key;
  }

  /** A valid token, except for the claims that the test changes or omits. */
  async token(claims: JWTPayload = {}, header: { alg?: string } = {}, without?: string): Promise<string> {
    if (!this.#signing) throw new Error('there is no key');
    const now = Math.floor(Date.now() / 1000);
    const usual = { iss: this.url, aud: 'everturn', sub: 'u-1', exp: now + 300, nbf: now };
    const said = Object.entries({ ...usual, ...claims }).filter(([name]) => name !== without);
    return new SignJWT(Object.fromEntries(said))
      .setProtectedHeader({ alg: 'RS256', kid: this.#signing.kid, ...header })
      .sign(this.#signing.key);
  }

  async stop(): Promise<void> {
    await this.#stop();
  }
}
