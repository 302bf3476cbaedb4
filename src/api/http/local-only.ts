import type { Request } from 'express';
import { isLoopback } from '../../config.ts';
import { ApiError } from './errors.ts';

/**
 * Rejects requests from elsewhere on a server without keys, where every request has the rights of `local`. A web page
 * can reach this server through a host name that resolves to this machine (DNS rebinding), or by a cross-origin
 * request, also from another port of this machine. Browsers reveal both in the headers Host, Origin and Sec-Fetch-Site.
 * @throws ApiError
 */
export function checkHost({ headers, httpVersion, method }: Request, { isKeyless }: { isKeyless: boolean }): void {
  const { host, origin } = headers;
  if (host === undefined && httpVersion === '1.1') {
    throw new ApiError('invalid_http', 'the request has no Host header: send one');
  }
  if (!isKeyless) return;
  const isOwnPage = origin === undefined || origin.toLowerCase() === `http://${host?.toLowerCase()}`;
  // Following a link from another page is a GET, which changes nothing.
  const mayBeLink = method === 'GET' || method === 'HEAD';
  const isCrossOrigin = ['cross-site', 'same-site'].includes(String(headers['sec-fetch-site']));
  if (isLoopbackHost(host) && isOwnPage && (mayBeLink || !isCrossOrigin)) return;
  throw new ApiError(
    'not_local',
    'without API keys the server accepts only requests to localhost, 127.0.0.1 or [::1], and none from web pages of ' +
      'other origins: create a key with `everturn keys create`, or set EVERTURN_API_KEYS',
  );
}

/**
 * Protects the operators' port, which needs no key, from DNS rebinding if it listens on loopback. If it listens on
 * another address, the host names by which clients reach it are unknown, and all are accepted.
 * @throws ApiError
 */
export function checkOperationsHost({ headers }: Request, { host }: { host: string }): void {
  if (!isLoopback(host) || isLoopbackHost(headers.host)) return;
  throw new ApiError('not_local', 'this port accepts only requests to localhost, 127.0.0.1 or [::1]');
}

/** Whether a Host header is exactly a loopback name or address, with or without a port. */
function isLoopbackHost(host = ''): boolean {
  const [, address, name = ''] = /^(?:\[([\da-f:]+)\]|([\w.-]+))(?::\d{1,5})?$/i.exec(host) ?? [];
  return isLoopback(address ?? name.toLowerCase());
}
