import { afterAll, beforeAll, expect, test } from 'vitest';
import { ApiClient } from '../support/api-client.ts';
import { Browser } from '../support/browser.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

let server: TestServer;
let browser: Browser;
beforeAll(async () => {
  server = await startTestServer({ env: { EVERTURN_API_KEYS: 'ann:admin=key-of-ann' } });
  browser = await Browser.start();
});
afterAll(async () => {
  await browser.stop();
  await server.stop();
});

test('the page shows the routes, and a request sent from it uses the key', async () => {
  const { url } = server.api;
  await new ApiClient(url, 'key-of-ann').putAgent('helper', { model: { name: 'm' } });
  const { page } = browser;
  await page.goto(`${url}/docs`);
  await page.click('.authorize');
  await page.fill('.auth-container input', 'key-of-ann');
  await page.click('.auth-btn-wrapper .authorize');
  await page.click('.btn-done');

  const operation = page.locator('#operations-Sessions-createSession');
  await operation.locator('.opblock-summary-control').click();
  await operation.locator('.try-out__btn').click();
  await operation.locator('.execute').click();
  const response = operation.locator('.live-responses-table .response');
  expect(await response.locator('.response-col_status').textContent()).toContain('201');
  expect(await response.locator('.response-col_description').textContent()).toContain('"agent_name": "helper"');

  const elsewhere = browser.requests.filter((asked) => !asked.startsWith(`${url}/`) && !asked.startsWith('data:'));
  expect(elsewhere).toEqual([]);
  expect(browser.requests).toContain(`${url}/v1/agents/sessions`);
  expect(browser.complaints).toEqual([]);
});

test('the page runs only files of the server, over HTTP and HTTPS', async () => {
  const { status, headers } = await fetch(`${server.api.url}/docs`);
  const policy = headers.get('content-security-policy');
  expect(status).toBe(200);
  expect(policy).toContain("default-src 'none'; script-src 'self'; style-src 'self'");
  expect(policy).not.toMatch(/unsafe|upgrade-insecure-requests|https?:/);
  // Also with a trailing slash, which would change the target of relative links.
  const slashed = await fetch(`${server.api.url}/docs/`);
  expect([slashed.status, slashed.url]).toEqual([200, `${server.api.url}/docs`]);
  const missing = await server.api.send('GET', '/docs/package.json');
  expect([missing.status, missing.body.error.code]).toEqual([404, 'not_found']);
});
