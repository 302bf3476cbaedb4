import { createAgent, createFetch, type Fetch } from './guarded-fetch.ts';
import { isPrivateAddress } from './private-address.ts';

export interface FetchedFile {
  mimeType: string;
  bytes: Buffer;
}

export interface FetchFileOptions {
  /** Whether the URL may lead to a private address. */
  allowPrivate: boolean;
  maxBytes: number;
  /** Ends the attempt, and with it the connection. */
  signal: AbortSignal;
}

const MAX_REDIRECTS = 5;
const CONNECT_MS = 10_000;

/**
 * Fetches what a URL from outside leads to. Where it leads is judged at each connection, also behind redirects.
 * @throws with a cause that `failureReason` can put into words
 */
export async function fetchFile(
  url: string,
  { allowPrivate, maxBytes, signal }: FetchFileOptions,
): Promise<FetchedFile> {
  // With an agent of its own: no connection that was allowed once is used again.
  const agent = createAgent({ connectTimeoutMs: CONNECT_MS, ...(!allowPrivate && { refuses: isPrivateAddress }) });
  try {
    const response = await follow(createFetch(agent), url, signal);
    if (response.status !== 200) throw new Error(`it answered with HTTP ${response.status}`);
    return { mimeType: mimeTypeOf(response), bytes: await read(response, maxBytes) };
  } finally {
    await agent.destroy();
  }
}

async function follow(fetch: Fetch, url: string, signal: AbortSignal): Promise<Response> {
  let at = parsed(url);
  for (let redirects = 0; redirects <= MAX_REDIRECTS; redirects++) {
    if (!/^https?:$/.test(at.protocol)) throw new Error('it leads to a URL that is neither http nor https');
    if (at.username || at.password) throw new Error('URLs with a user name or password can not be used');
    const response = await fetch(at, { signal, redirect: 'manual', headers: { 'user-agent': 'everturn' } });
    const location = response.headers.get('location');
    if (![301, 302, 303, 307, 308].includes(response.status) || location === null) return response;
    await response.body?.cancel();
    at = parsed(location, at);
  }
  throw new Error(`it leads through more than ${MAX_REDIRECTS} redirects`);
}

function parsed(url: string, base?: URL): URL {
  const at = URL.parse(url, base?.href);
  if (!at) throw new Error('it leads to what is not a URL');
  return at;
}

async function read(response: Response, maxBytes: number): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  // Counted as they are unpacked: a small answer may unpack to a huge file.
  for await (const chunk of response.body ?? []) {
    length += chunk.length;
    if (length > maxBytes) throw new Error(`it is larger than ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function mimeTypeOf({ headers }: Response): string {
  const [type] = /^[\w.+-]{1,127}\/[\w.+-]{1,127}/.exec(headers.get('content-type') ?? '') ?? [];
  return type?.toLowerCase() ?? 'application/octet-stream';
}
