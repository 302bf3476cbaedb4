import type { Request } from 'express';
import { isLoopback } from '../config.ts';
import { ApiError } from './errors.ts';

/**
 * Without keys everybody who reaches the server is `local`, so only requests from this machine to this machine count. A
 * web page can be called by a name that leads here (DNS rebinding), or post to here from its own site; the browser says
 * so in these headers.
 * @throws ApiError
 */
export function checkHost({ headers, httpVersion }: Request, { isKeyless }: { isKeyless: boolean }): void {
  const { host, origin } = headers;
  if (host === undefined && httpVersion === '1.1') {
    throw new ApiError('invalid_http', 'the request has no Host header: send one');
  }
  if (!isKeyless) return;
  if (leadsHere(`http://${host}`) && (origin === undefined || leadsHere(origin))) return;
  throw new ApiError(
    'not_local',
    'without API keys the server answers only what is sent to localhost, 127.0.0.1 or [::1], and not by a web page from elsewhere: make a key with `everturn keys create`, or set EVERTURN_API_KEYS',
  );
}

function leadsHere(url: string): boolean {
  const { hostname = '' } = URL.parse(url) ?? {};
  return isLoopback(hostname.replace(/^\[(.*)\]$/, '$1'));
}
