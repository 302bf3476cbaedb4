import type { Request } from 'express';
import { isLoopback } from '../../config.ts';
import { ApiError } from './errors.ts';

/**
 * Without keys every request is made as `local`, so only requests from this machine to this machine count. A web page can
 * be called by a name that leads here (DNS rebinding), or post to here from its own site, which may be another port of this
 * machine; the browser says so in these headers.
 * @throws ApiError
 */
export function checkHost({ headers, httpVersion, method }: Request, { isKeyless }: { isKeyless: boolean }): void {
  const { host, origin } = headers;
  if (host === undefined && httpVersion === '1.1') {
    throw new ApiError('invalid_http', 'the request has no Host header: send one');
  }
  if (!isKeyless) return;
  const isOwnPage = origin === undefined || origin.toLowerCase() === `http://${host?.toLowerCase()}`;
  // Links from other pages are followed by GET, which changes nothing.
  const mayBeLink = method === 'GET' || method === 'HEAD';
  const isElsewhere = ['cross-site', 'same-site'].includes(String(headers['sec-fetch-site']));
  if (leadsHere(host) && isOwnPage && (mayBeLink || !isElsewhere)) return;
  throw new ApiError(
    'not_local',
    'without API keys the server answers only what is sent to localhost, 127.0.0.1 or [::1], and not by a web page from elsewhere: make a key with `everturn keys create`, or set EVERTURN_API_KEYS',
  );
}

/**
 * The port for operators needs no key. Where it listens on loopback, a web page that is called by a name which leads here
 * is kept out; where others can reach it, their names for it are not known.
 * @throws ApiError
 */
export function checkOperationsHost({ headers }: Request, { host }: { host: string }): void {
  if (!isLoopback(host) || leadsHere(headers.host)) return;
  throw new ApiError('not_local', 'this port answers only what is sent to localhost, 127.0.0.1 or [::1]');
}

/** Of a Host header: a name or an address of loopback, with or without a port, and nothing else. */
function leadsHere(host = ''): boolean {
  const [, address, name = ''] = /^(?:\[([\da-f:]+)\]|([\w.-]+))(?::\d{1,5})?$/i.exec(host) ?? [];
  return isLoopback(address ?? name.toLowerCase());
}
