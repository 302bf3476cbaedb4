import { request } from 'node:http';
import { expect, onTestFinished, test } from 'vitest';
import { startDemoMcpServer } from './demo-mcp-server.ts';

/** The status of a request with this Host header. */
async function statusFor(url: string, host: string): Promise<number | undefined> {
  const { promise, resolve, reject } = Promise.withResolvers<number | undefined>();
  const headers = { host, 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
  request(url, { method: 'POST', headers }, (response) => {
    response.resume();
    resolve(response.statusCode);
  })
    .on('error', reject)
    .end('{"jsonrpc":"2.0","id":1,"method":"ping"}');
  return promise;
}

test("the demo answers only requests under the machine's own names, while there are no keys", async () => {
  let isKeyless = true;
  const server = await startDemoMcpServer({ isKeyless: () => isKeyless });
  onTestFinished(() => server.stop());
  const { port } = new URL(server.url);
  for (const host of ['evil.example', `evil.example:${port}`, '10.0.0.1', '127.0.0.1.evil.example', 'a@127.0.0.1']) {
    expect(await statusFor(server.url, host), host).toBe(403);
  }
  for (const host of [`127.0.0.1:${port}`, `localhost:${port}`, '[::1]']) {
    expect(await statusFor(server.url, host), host).not.toBe(403);
  }
  isKeyless = false;
  expect(await statusFor(server.url, 'localhost')).toBe(403);
});
