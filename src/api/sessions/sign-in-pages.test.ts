import type { Request, Response } from 'express';
import { expect, test } from 'vitest';
import { sendOffer } from './sign-in-pages.ts';

/** The page of an offer to an owner. */
function pageFor(owner: { id: string; slug: string }): string {
  let html = '';
  const response: Pick<Response, 'cookie' | 'set' | 'type' | 'send'> = {
    cookie: () => response as Response,
    set: () => response as Response,
    type: () => response as Response,
    send: (body: string) => {
      html = body;
      return response as Response;
    },
  };
  const request = { headers: {} } as Request;
  const server = { name: 'notes', url: 'https://notes.example.com/mcp' };
  const offer = { server, issuer: 'https://idp.example.com', scopes: [], agent: 'cook', owner };
  sendOffer({ request, response: response as Response, isSecure: true }, 'state', offer);
  return html;
}

test('the page before a sign-in names the owner and its id, since slugs need not be unique', () => {
  const page = pageFor({ id: 'https://idp.example.com#1<2', slug: 'ann' });
  expect(page).toContain('a conversation of ann (https://idp.example.com#1&lt;2)');
  expect(pageFor({ id: 'ann', slug: 'ann' })).toContain('Continue only if you are ann and');
});
