import { afterAll, beforeAll, expect, test } from 'vitest';
import { exchange } from '../support/raw-http.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer();
});
afterAll(() => server.stop());

const request = (...headers: string[]) =>
  exchange(server.api.url, `GET /v1/agents/demo HTTP/1.1\r\n${[...headers, 'connection: close'].join('\r\n')}\r\n\r\n`);

test('without keys the server is there for this machine', async () => {
  for (const host of ['localhost', 'LocalHost:8080', '127.0.0.1:80', '127.1.2.3', '[::1]', '[::1]:8080']) {
    expect((await request(`host: ${host}`)).status, host).toBe(200);
    expect((await request('host: localhost', `origin: http://${host}`)).status, host).toBe(200);
  }
});

test('without keys it is not there for web pages that call it by another name, or are from elsewhere', async () => {
  const elsewhere = [
    'evil.example',
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    'localhost@evil.example',
    '8.8.8.8',
  ];
  for (const host of [...elsewhere, '[::2]', '::1', '']) {
    const { status, body } = await request(`host: ${host}`);
    expect([status, body.error.code], host).toEqual([400, 'not_local']);
    expect(body.error.message).toMatch(/EVERTURN_API_KEYS/);
  }
  for (const origin of [...elsewhere.map((host) => `https://${host}`), 'null', 'file://', '']) {
    const { status, body } = await request('host: localhost', `origin: ${origin}`);
    expect([status, body.error.code], origin).toEqual([400, 'not_local']);
  }
});
