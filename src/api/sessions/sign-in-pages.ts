import { randomBytes } from 'node:crypto';
import type { Request, Response } from 'express';
import { sha256 } from '../../lib/hash.ts';
import type { EndedSignIn, OfferedSignIn } from '../../features/sign-in/sign-ins.ts';

/**
 * The cookie that identifies a browser that confirms a sign-in. `SameSite=Lax`, since the authorization server sends
 * the browser back from another site. With https the prefix `__Host-` keeps other hosts of the domain from setting it.
 */
const COOKIE = 'everturn-sign-in';
const COOKIE_MAX_AGE_MS = 60 * 60_000;

function cookieName(isSecure: boolean): string {
  return isSecure ? `__Host-${COOKIE}` : COOKIE;
}

/** The browser of a request, if it has opened the link of a sign-in before. */
export function browserOf(request: Request, isSecure: boolean): string | undefined {
  const cookies = (request.headers.cookie ?? '').split(';').map((cookie) => cookie.trim().split('='));
  const [, value = ''] = cookies.find(([name]) => name === cookieName(isSecure)) ?? [];
  return /^[\w-]{43}$/.test(value) ? value : undefined;
}

/** Shows what a sign-in is for. It begins only with the form of this page, in the same browser. */
export function sendOffer(
  { request, response, isSecure }: { request: Request; response: Response; isSecure: boolean },
  state: string,
  offer: OfferedSignIn,
): void {
  const browser = browserOf(request, isSecure) ?? randomBytes(32).toString('base64url');
  const options = { httpOnly: true, sameSite: 'lax', secure: isSecure, path: '/' } as const;
  response.cookie(cookieName(isSecure), browser, { ...options, maxAge: COOKIE_MAX_AGE_MS });
  const { server, issuer, scopes, agent } = offer;
  const { id, slug } = offer.owner;
  const owner = slug === id ? slug : `${slug} (${id})`;
  const who = agent === null ? `A draft agent of ${owner}` : `The agent ${agent}, in a conversation of ${owner},`;
  const access = scopes.length > 0 ? ` (${scopes.join(', ')})` : '';
  const body = [
    `<p>${escaped(who)} asks for access to your account${escaped(access)} at this server:</p>`,
    `<p><b>${escaped(server.name)}</b>, ${escaped(server.url)}</p>`,
    `<p>You sign in at ${escaped(issuer)}. From then on, conversations of ${escaped(owner)} use the server as you.</p>`,
    `<p>Continue only if you are ${escaped(owner)} and this is your conversation. `,
    'If another person sent you this link, close the page.</p>',
    // Without an action, a form is sent to the address of its page.
    `<form method="post"><input type="hidden" name="token" value="${formToken(browser, state)}" />`,
    '<button name="decision" value="continue">Continue</button> ',
    '<button name="decision" value="decline">Do not sign in</button></form>',
  ];
  // No `form-action`: browsers apply it to the redirect to the authorization server.
  response.set('content-security-policy', "default-src 'none'; base-uri 'none'; frame-ancestors 'none'");
  sendPage(response, `Sign in to ${server.name}?`, body.join('\n'));
}

/** Proves that a form comes from the page of this sign-in, in this browser. */
export function formToken(browser: string, state: string): string {
  return sha256(JSON.stringify([browser, state]));
}

export function sendEnd(response: Response, { status, server, account, isAwaited }: EndedSignIn): void {
  if (status === 'granted') {
    const next = isAwaited ? 'The conversation goes on by itself.' : 'Continue the conversation.';
    const who = account === undefined ? '' : `Your account there is ${account}. `;
    sendText(response, `You are signed in to ${server}`, `${who}You can close this page. ${next}`);
  } else {
    const next = 'You can close this page: the conversation continues without this server.';
    sendText(response, `You have declined to sign in to ${server}`, next);
  }
}

export function sendText(response: Response, title: string, text: string): void {
  sendPage(response, title, `<p>${escaped(text)}</p>`);
}

function sendPage(response: Response, title: string, html: string): void {
  keepAddress(response).type('html');
  response.send(
    `<!doctype html>\n<html lang="en"><meta charset="utf-8" /><title>${escaped(title)}</title>` +
      `<h1>${escaped(title)}</h1>${html}</html>\n`,
  );
}

/** The state in the page's address must not reach another server, or a cache. */
export function keepAddress(response: Response): Response {
  return response.set('referrer-policy', 'no-referrer').set('cache-control', 'no-store');
}

const ENTITIES: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };

function escaped(text: string): string {
  return text.replaceAll(/[&<>"']/g, (character) => ENTITIES[character] ?? character);
}
