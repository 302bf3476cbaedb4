import { createAgent, createFetch, type Fetch } from './guarded-fetch.ts';
import { isPrivateAddress } from './private-address.ts';

export interface FetchedFile {
  mimeType: string;
  bytes: Buffer;
}

interface FetchFileOptions {
  /** Whether the URL may resolve to a private address. */
  allowPrivate: boolean;
  maxBytes: number;
  /** Aborts the request and closes its connection. */
  signal: AbortSignal;
}

const MAX_REDIRECTS = 5;
const CONNECT_MS = 10_000;

/**
 * Fetches a file from a URL that a client supplied. The address is checked at each connection, also after redirects.
 * @throws an error that `failureReason` can describe
 */
export async function fetchFile(
  url: string,
  { allowPrivate, maxBytes, signal }: FetchFileOptions,
): Promise<FetchedFile> {
  // An agent per file, so that no connection that was allowed for another request is reused.
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
    if (!/^https?:$/.test(at.protocol)) throw new Error('its URL is neither http nor https');
    if (at.username || at.password) throw new Error('URLs with a user name or password cannot be used');
    const response = await fetch(at, { signal, redirect: 'manual', headers: { 'user-agent': 'everturn' } });
    const location = response.headers.get('location');
    if (![301, 302, 303, 307, 308].includes(response.status) || location === null) return response;
    await response.body?.cancel();
    at = parsed(location, at);
  }
  throw new Error(`it redirects more than ${MAX_REDIRECTS} times`);
}

function parsed(url: string, base?: URL): URL {
  const at = URL.parse(url, base?.href);
  if (!at) throw new Error('it leads to an invalid URL');
  return at;
}

async function read(response: Response, maxBytes: number): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  // Decompressed bytes are counted: a small response may decompress to a huge file.
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
